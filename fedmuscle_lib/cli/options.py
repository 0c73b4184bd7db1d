"""Values from the text of a command line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Annotated, Any

import typer

from fedmuscle_lib.fedmuscle.settings import Settings

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
_LISTS = ("users", "drops")  # settings that may be written as 1,2,3


def value_of(name: str, value: Any) -> Any:
    """A setting's value from its text: JSON for matrices and mappings, commas between the items of
    a list, else as it stands.

    Raises:
        ValueError: text that begins like JSON and is none.
    """
    if not isinstance(value, str):
        return value
    if value[:1] in ("[", "{"):
        try:
            return json.loads(value)
        except json.JSONDecodeError as error:
            raise ValueError(f"{name}: {value!r} is not JSON ({error})") from None
    if name == "device" and value.lstrip("-").isdigit():  # the original codes' number of a GPU
        return "cpu" if value[0] == "-" else f"cuda:{value}"
    return tuple(value.split(",")) if name in _LISTS else value


def named_values(texts: Iterable[str] | None) -> dict[str, Any]:
    """Return what ``-p NAME=VALUE`` gives: JSON where the value is some, else text.

    Raises:
        ValueError: a text without "=".
    """
    values = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"-p takes NAME=VALUE, not {text!r}")
        values[name] = value_of(name, value)
        with suppress(TypeError, json.JSONDecodeError):  # numbers
            values[name] = json.loads(values[name])
    return values


def numbers_of(name: str, text: str) -> list[int]:
    """The numbers of "0,1,2", each once; raises ValueError for anything else."""
    if not re.fullmatch(r"\d+(,\d+)*", text):
        raise ValueError(f"{name}: whole numbers with commas between them are needed, not {text!r}")
    return list(dict.fromkeys(map(int, text.split(","))))
