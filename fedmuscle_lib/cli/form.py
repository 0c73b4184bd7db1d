"""The options of a command that runs a system: one for every setting, made from the schema of the
settings.

pydantic-settings' ``CliApp`` was tried on ``run``: it has no headings, shows other defaults than
the profile's, refuses a matrix for ``tau``, and its errors take several lines.
"""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import tomli_w
import typer

from fedmuscle_lib.cli.options import value_of
from fedmuscle_lib.core.errors import prefixed
from fedmuscle_lib.core.files import ROOT
from fedmuscle_lib.runs.settings import RunSettings, parse, try_device

_BOUNDS = {
    "minimum": "at least",
    "exclusiveMinimum": "above",
    "maximum": "at most",
    "exclusiveMaximum": "below",
}
_ORIGINAL = "Flags of the original code"  # the group of those that are no settings
_FILE = "A file of settings"
_CONFIG = typer.Option(
    metavar="FILE",
    help="Read settings from a TOML file, as --print-config prints one; options given beside it"
    " override it.",
    rich_help_panel=_FILE,
)
_PRINT = typer.Option(
    "--print-config", help="Print all settings, and do nothing else.", rich_help_panel=_FILE
)


def add(
    app: typer.Typer,
    name: str,
    command: Callable[..., None],
    kind: type[RunSettings],
    translated: Callable[[dict[str, Any]], dict[str, Any]] = dict,
    original: Mapping[str, tuple[type, str]] = {},
) -> None:
    """Add a command whose first parameter is settings, with an option for each of them.

    Args:
        kind: the class of the system's settings.
        translated: replaces flags and values of the original code by the settings that they mean.
        original: flags of the original code that are no settings: type and help.
    """
    about = kind.model_json_schema()["properties"]
    ours = {_dashed(said["flag"]): _dashed(own) for own, said in about.items() if "flag" in said}
    options = [
        _option(own, str, about[own], _default(kind, own))
        for own in dict.fromkeys([*kind.__annotations__, *RunSettings.__annotations__])
        if own in about
    ]
    for flag, (type_, description) in original.items():
        options.append(_option(flag, type_, {"group": _ORIGINAL, "description": description}))
    _, *rest = inspect.signature(command, eval_str=True).parameters.values()
    file = [
        _optional("config", Path, _CONFIG),
        _optional("print_config", bool, _PRINT, False),
    ]

    def filled(config: Path | None, print_config: bool, **given: Any) -> None:
        others = {parameter.name: given.pop(parameter.name) for parameter in rest}
        values = {own: value_of(own, text) for own, text in given.items() if text is not None}
        values = translated(values)
        told = _read(config) if config else {}
        parts = {
            name: told[name] | values[name]
            for name in kind.joined
            if name in told and name in values
        }
        whole = told | values | parts
        settings = parse(kind, whole)
        if print_config:
            own = kind.places() - whole.keys()  # of this machine
            print(tomli_w.dumps(settings.model_dump(mode="json", exclude_none=True, exclude=own)))
            return
        try_device(settings.device)
        if unread := settings.unread(values):
            print(f"{settings.algorithm} does not read {', '.join(unread)}")
        command(settings, **others)

    filled.__doc__ = command.__doc__
    filled.__signature__ = inspect.Signature([*rest, *options, *file])  # type: ignore[attr-defined]
    spelling = {"token_normalize_func": lambda text: ours.get(_dashed(text), _dashed(text))}
    app.command(name, context_settings=spelling)(filled)


def _option(
    name: str, kind: type, about: Mapping[str, Any], default: str = ""
) -> inspect.Parameter:
    """An option that is None where it is not given; its help says what it can be."""
    facts = []
    for part in _parts(about):
        facts += [f"one of {', '.join(part['enum'])}"] if "enum" in part else []
        facts += [f"{words} {part[key]}" for key, words in _BOUNDS.items() if key in part]
    said = "; ".join(dict.fromkeys(filter(None, [*facts, default])))
    made = typer.Option(
        f"--{_dashed(name)}",
        help=about["description"]
        + (f" The original code's --{about['flag']}." if "flag" in about else "")
        + (rf" \[{said}]" if said else ""),  # brackets are markup
        metavar="VALUE",
        rich_help_panel=about["group"],
    )
    return _optional(name, kind, made)


def _optional(name: str, kind: type, made: Any, default: Any = None) -> inspect.Parameter:
    annotation = Annotated[kind | None, made]  # type: ignore[valid-type]
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


def _read(path: Path) -> dict[str, Any]:
    """The settings of a file; raises ValueError if it is no TOML."""
    with prefixed(str(path), ValueError, ValueError):
        return tomllib.loads(path.read_text(encoding="utf8"))


def _default(kind: type[RunSettings], name: str) -> str:
    """Such as "20 in mini, 150 in paper"; the value alone where all profiles agree."""
    default = kind.model_fields[name].default
    if isinstance(default, dict):
        return ""  # too many to list
    values = {
        profile: str(numbers.get(name, default)).removeprefix(f"{ROOT}/")
        for profile, numbers in kind.profiles.items()
    }
    if len(set(values.values())) > 1:
        return ", ".join(f"{value} in {profile}" for profile, value in values.items())
    return "" if default is None else f"default: {default}"


def _parts(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The schema and those of which it is a union."""
    yield schema
    for part in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        yield from _parts(part)


def _dashed(name: str) -> str:
    return name.replace("_", "-")
