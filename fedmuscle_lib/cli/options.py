"""Values from the text of a command line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

import typer
from pydantic.fields import FieldInfo

from fedmuscle_lib.cli import original
from fedmuscle_lib.fedmuscle.settings import Settings
from fedmuscle_lib.runs import RunSettings
from fedmuscle_lib.runs.settings import LARGEST

K = TypeVar("K", str, int)

Profile = Annotated[str, typer.Option(help=Settings.model_fields["profile"].description)]
Parameters = Annotated[
    list[str] | None,
    typer.Option(
        "-p",
        "--parameter",
        metavar="NAME=VALUE",
        help="A notebook's parameter or any setting; repeatable.",
    ),
]


def value_of(
    name: str, text: str, settings: type[RunSettings], words: Mapping[str, Mapping[str, str]]
) -> Any:
    """A setting's value from its text: JSON for matrices and mappings, commas between the items of
    a list, else as it stands.

    Args:
        settings: the class that has the setting.
        words: the original code's values of a setting and ours.

    Raises:
        ValueError: text that begins like JSON and is none.
    """
    if name == "device" and re.fullmatch(
        r"-?\d+", text
    ):  # the original codes' number of a GPU; there is none before the first
        return f"cuda:{text}" if int(text) >= 0 else "cpu"
    if text[:1] in ("[", "{"):
        try:
            return _json(name, text)
        except json.JSONDecodeError as error:
            raise ValueError(f"{name}: {text!r} is not JSON ({error})") from None
    if name in settings.model_fields and is_list(settings.model_fields[name]):
        return tuple(item.strip() for item in text.split(","))
    return words.get(name, {}).get(text, text)


def named_values(texts: Iterable[str] | None) -> dict[str, Any]:
    """Return what ``-p NAME=VALUE`` gives: numbers, lists and mappings as JSON, other values as
    text.

    Raises:
        ValueError: a text without "=", or two for one name.
    """
    return _once("-p", map(_named_value, texts or ()))


def _named_value(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"-p takes NAME=VALUE, not {text!r}")
    value = value_of(name, value, Settings, original.VALUES)
    try:
        return name, _json(name, value) if isinstance(value, str) else value
    except json.JSONDecodeError:
        return name, value


def _json(name: str, text: str) -> Any:
    """Read JSON.

    Raises:
        json.JSONDecodeError: it is none.
        ValueError: it is, but has a number or a depth that can't be read, or a key twice.
    """
    try:
        return json.loads(text, object_pairs_hook=lambda pairs: _once(name, pairs))
    except RecursionError:
        raise ValueError(f"{name}: too many brackets in each other") from None
    except ValueError as error:
        if isinstance(error, json.JSONDecodeError) or not str(error).startswith("Exceeds"):
            raise
        raise ValueError(f"{name}: a number of too many digits") from None


def _once(what: str, pairs: Iterable[tuple[K, Any]]) -> dict[K, Any]:
    found: dict[K, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{what}: {name!r} is given twice")
        found[name] = value
    return found


def seeds_of(text: str) -> list[int]:
    """The numbers of "0,1,2"; raises ValueError for anything else, a number that no run can have as
    its seed, or one twice.
    """
    try:
        seeds = [int(item) for item in text.split(",")]
    except ValueError:
        raise ValueError(f"seeds: whole numbers with commas between them, not {text!r}") from None
    if wrong := [seed for seed in seeds if not 0 <= seed <= LARGEST]:
        raise ValueError(f"seeds: numbers from 0 to {LARGEST}, not {wrong[0]}")
    return list(_once("seeds", ((seed, None) for seed in seeds)))


def alternatives(annotation: Any) -> Iterator[Any]:
    """Return what a value may be: the types of a union and their bounds, one after the other."""
    if isinstance(annotation, FieldInfo):
        yield from annotation.metadata
    elif get_origin(annotation) in (Annotated, Union, UnionType):
        for part in get_args(annotation):
            yield from alternatives(part)
    else:
        yield annotation


def is_list(field: FieldInfo) -> bool:
    """Return whether the field takes a flat tuple (a matrix is none)."""
    kinds = [field.annotation, *get_args(field.annotation)]
    return any(
        get_origin(kind) is tuple and get_origin(get_args(kind)[0]) is not tuple for kind in kinds
    )
