"""The options of a command that runs a system: one for every setting, made from the settings'
fields.

pydantic-settings' ``CliApp`` and tyro were tried on ``run``. Neither has headings, values by
profile or one-line errors, and tyro takes each default for a given value, which then overrides the
profile's. They could replace a hundred lines here and in ``options``, and the code around them that
restores headings, names and errors would be as long.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, get_args, get_origin

import typer

from fedmuscle_lib.cli.options import alternatives, is_list, value_of
from fedmuscle_lib.core.files import ROOT
from fedmuscle_lib.runs.settings import S, parse, try_device

_RANGES = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
ORIGINAL = "Flags of the original code"  # the group of those that are no settings


@dataclass(frozen=True)
class Form(Generic[S]):
    """A command's options, and their page of help.

    Attributes:
        settings: the class of the system's settings.
        translated: replaces flags of the original code that are no settings by the settings that
            they mean.
        words: the original code's values of a setting and ours.
        flags: the original code's names of options that are no settings.
    """

    settings: type[S]
    translated: Callable[[dict[str, Any]], dict[str, Any]]
    words: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    flags: Mapping[str, str] = field(default_factory=dict)

    def read(self, options: Mapping[str, Any]) -> S:
        """Settings from what was given on the command line; None is not given.

        Raises:
            ValueError: a value that the setting can't have, or settings that contradict each other.
        """
        given = {name: value for name, value in options.items() if value is not None}
        given |= {
            name: value_of(name, text, self.settings, self.words)
            for name, text in given.items()
            if isinstance(text, str)
        }
        settings = parse(self.settings, self.translated(given))
        try_device(settings.device)
        return settings

    def spelling(self, name: str) -> str:
        """An option's one spelling: underscores are dashes, and the original code's names stand for
        ours.
        """
        theirs = {_dashed(flag): _dashed(own) for own, flag in self._flags.items()}
        return theirs.get(_dashed(name), _dashed(name))

    @property
    def _flags(self) -> dict[str, str]:
        about = {name: self.settings.about(name) for name in self.settings.model_fields}
        return {name: one["flag"] for name, one in about.items() if "flag" in one} | dict(
            self.flags
        )

    def alias(self, name: str) -> str:
        """A sentence with the original code's name, if it has another."""
        return f" The original code's --{self._flags[name]}." if name in self._flags else ""

    def signature(
        self, before: Sequence[inspect.Parameter], after: Sequence[inspect.Parameter]
    ) -> inspect.Signature:
        """A command's: an option for every setting, by group, between others."""
        names = [
            name for name in self.settings.__annotations__ if name in self.settings.model_fields
        ]
        own = [
            option(
                name,
                self._help(name),
                self._metavar(name),
                group=self.settings.about(name)["group"],
            )
            for name in names
        ]
        return inspect.Signature([*before, *own, *after])

    def _help(self, name: str) -> str:
        """Return what a setting is, what it can be, and its value in each profile."""
        own = self.settings.model_fields[name]
        kinds = [*own.metadata, *alternatives(own.annotation)]
        facts = [
            f"one of {', '.join(get_args(kind))}" for kind in kinds if get_origin(kind) is Literal
        ]
        facts += [
            f"{words} {getattr(kind, key)}"
            for kind in kinds
            for key, words in _RANGES.items()
            if hasattr(kind, key)
        ]
        facts += filter(None, [self._values(name)])
        return f"{own.description}{self.alias(name)}" + (
            f" [{'; '.join(dict.fromkeys(facts))}]" if facts else ""
        )

    def _values(self, name: str) -> str:
        """Such as "20 in mini, 150 in paper"; the value alone where all profiles agree; nothing
        where there is none by default.
        """
        default = self.settings.model_fields[name].default
        if any(
            len(values.get(name, ())) > 1
            for values in self.settings.profiles.values()
            if isinstance(default, dict)
        ):
            return "the profile's own"  # too many to list
        profiles: dict[str, list[str]] = {}
        for profile, values in self.settings.profiles.items():
            profiles.setdefault(_shown(values.get(name, default)), []).append(profile)
        if len(profiles) == 1:
            (value,) = profiles
            return f"default: {value}" if value else ""
        return ", ".join(
            f"{value or 'none'} in {' and '.join(names)}" for value, names in profiles.items()
        )

    def _metavar(self, name: str) -> str:
        own = self.settings.model_fields[name]
        kinds = [get_origin(kind) or kind for kind in alternatives(own.annotation)]
        words = {
            int: "INT",
            float: "NUMBER",
            Path: "PATH",
            dict: "JSON",
            tuple: "A,B" if is_list(own) else "JSON",
        }
        return "|".join(dict.fromkeys(words[kind] for kind in kinds if kind in words)) or "TEXT"


def option(
    name: str, help: str, metavar: str | None = None, kind: Any = str, *, group: str | None = None
) -> inspect.Parameter:
    """An option that is None where it is not given, or a flag (``kind`` bool) that is False."""
    escaped = help.replace("[", r"\[")  # brackets are markup
    made = typer.Option(
        f"--{_dashed(name)}",
        help=escaped,
        metavar=metavar,
        rich_help_panel=group,
        show_default=kind is bool,
    )
    annotation, default = (bool, False) if kind is bool else (kind | None, None)
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[annotation, made],
    )


def _dashed(name: str) -> str:
    return name.replace("_", "-")


def _shown(value: Any) -> str:
    if isinstance(value, Path):
        return (value.relative_to(ROOT) if value.is_relative_to(ROOT) else value).as_posix()
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    if isinstance(value, dict):
        return json.dumps(value) if value else ""
    return "" if value is None else str(value)
