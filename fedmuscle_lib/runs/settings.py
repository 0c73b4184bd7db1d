"""Settings of any run: frozen, strict, and told by the run's profile.

Each system refines :class:`RunSettings`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeVar, get_args

import torch
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from fedmuscle_lib.core.errors import line_of, prefixed
from fedmuscle_lib.core.files import ROOT, Json
from fedmuscle_lib.core.registry import check_known, meant, own_options

# In the place of an error: which form a setting has of those that it can have.
ONE, BY, MATRIX = "one", "by task", "matrix"
DEVICE = (
    "A torch device, such as `cpu` or `cuda:0`; `auto` takes `cuda:0` if there is one, else `mps`"
    " (Apple's), else `cpu`."
)


def setting(group: str, default: Any, description: str, open: str = "", **told: Any) -> Any:
    """A field of a system's settings, with everything that is said of it anywhere.

    Args:
        group: its heading in ``--help``.
        default: the paper's value where it states one.
        description: what it is, with the paper's words.
        open: "open", what the paper leaves open here, and our default. Departures always list it.
        told: bounds, as pydantic's ``Field`` takes them; aside: True if it says what is compared,
            where things lie or how they travel: departures and provenance do not name it; flag: its
            name in the original code; neutral: see :meth:`RunSettings.relevant`; paper: what
            departures say of the paper where ours is not the default, if not the default.
    """
    bounds = {name: told.pop(name) for name in ("ge", "gt", "le", "lt") if name in told}
    whole = f"{description} The paper leaves it {open}." if open else description
    return Field(
        default,
        description=whole,
        json_schema_extra={"group": group, "open": open, **told},
        **bounds,
    )


class RunSettings(BaseModel):
    """Settings of a run: frozen and strict. An unknown or mistyped field is an error that names it.

    Attributes:
        system: its name in SYSTEMS.
        labels: settings by which runs are told apart where they are listed, beside profile and
            seed.
        profiles: the values of each profile, by its name.
        joined: settings by name of which given parts join the profile's.
        algorithm: what the parties do together; empty where a system does but one thing.
        profile: which numbers, data and checkpoints.
        seed: of all random draws.
        rounds: how many.
        threads: torch threads of the run.
        device: a torch device; "auto" becomes the name of one (:func:`resolved`), so that no
            address has it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    system: ClassVar[str]
    labels: ClassVar[tuple[str, ...]] = ()
    profiles: ClassVar[Mapping[str, Mapping[str, Any]]]
    joined: ClassVar[tuple[str, ...]] = ("options",)

    algorithm: str = ""
    profile: str
    seed: int
    rounds: int
    threads: int = setting(
        "Machine",
        2,
        "Torch threads of a run; small models are fastest, and repeatable, on one. The project's"
        " own.",
        ge=1,
        le=1024,
        aside=True,
    )
    device: str = setting("Machine", "cpu", DEVICE, aside=True)

    @model_validator(mode="before")
    @classmethod
    def _fill_from_profile(cls, given: dict[str, Any]) -> dict[str, Any]:
        profile = given.get("profile", cls.model_fields["profile"].default)
        check_known("unknown profile", profile, cls.profiles)
        numbers = cls.numbers(profile, given)
        joined = {
            name: numbers.get(name, cls.model_fields[name].default) | given[name]
            for name in cls.joined
            if isinstance(given.get(name), dict)
        }
        return numbers | given | joined

    @classmethod
    def numbers(cls, profile: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """A profile's values beside what is given."""
        return dict(cls.profiles[profile])

    @field_validator("device")
    @classmethod
    def _device_by_name(cls, device: str) -> str:
        return resolved(device)

    @property
    def title(self) -> str:
        """The run's name in lines of progress and in errors, such as "creamfl seed 0"."""
        return " ".join([*(str(getattr(self, name)) for name in self.labels), f"seed {self.seed}"])

    @property
    def own_options(self) -> dict[str, Any]:
        """The algorithm's own hyper-parameters, by their names in its Options, where settings have
        ``options``.
        """
        return own_options(vars(self)["options"], self.algorithm)

    @property
    def ignored(self) -> Collection[str]:
        """Settings that the algorithm does not read."""
        return ()

    def unread(self, given: Mapping[str, Any]) -> list[str]:
        """Of the settings and options that are given, those that the algorithm does not read."""
        own = f"{self.algorithm}."
        others = [name for name in given.get("options", ()) if not name.startswith(own)]
        return [name for name in given if name in self.ignored] + others

    @classmethod
    def about(cls, name: str) -> dict[str, Any]:
        """Return what :func:`setting` was told of a field beside its default and description."""
        extra = cls.model_fields[name].json_schema_extra
        return extra if isinstance(extra, dict) else {}

    @classmethod
    def aside(cls) -> set[str]:
        """Settings that say what is compared, where things lie or how they travel."""
        return {name for name in cls.model_fields if cls.about(name).get("aside")}

    @classmethod
    def places(cls) -> set[str]:
        """Settings that say where things are, and not what they are."""
        return {
            name
            for name, field in cls.model_fields.items()
            if Path in (field.annotation, *get_args(field.annotation))
        }

    def recorded(self) -> Json:
        """The settings as JSON values, without places."""
        return self.model_dump(mode="json", exclude=self.places())

    def portable(self) -> Json:
        """The settings as JSON values, without the places that the profile gives, which another
        machine has elsewhere.
        """
        usual = self.profiles[self.profile]
        return self.model_dump(
            mode="json",
            exclude={name for name in self.places() if getattr(self, name) == usual.get(name)},
        )

    def relevant(self, exclude: set[str]) -> Json:
        """Return what a run sees of the settings, as JSON values: all but ``exclude`` and those
        that change nothing.

        A setting that was added when runs were stored already names the value at which it changes
        nothing, as ``neutral``. At this value it is left out, and the stored runs keep their
        addresses.
        """
        neutral = {
            name
            for name, value in self
            if "neutral" in (extra := self.about(name)) and value == extra["neutral"]
        }
        return self.model_dump(mode="json", exclude=exclude | neutral)


def resolved(device: str) -> str:
    """The name of a device; of "auto" the first GPU by CUDA if there is one, then Apple's by MPS,
    else the CPU.
    """
    if device != "auto":
        return device
    if torch.cuda.is_available():
        return "cuda:0"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def try_device(name: str) -> str:
    """The name of the device called ``name``, "auto" resolved; raises ValueError if torch can't
    compute on it.
    """
    device = resolved(name)
    try:
        torch.ones(2, device=device).sum().item()  # "meta" has no numbers
    except Exception as error:  # torch has many kinds, of a module that is missing too
        raise ValueError(f"device: {name!r} can't be used here: {line_of(str(error))}") from None
    return device


S = TypeVar("S", bound=RunSettings)
M = TypeVar("M", bound=BaseModel)


def parse(kind: type[M], given: dict[str, Any]) -> M:
    """``kind(**given)`` with an error that a person can act on: one line a setting, and what a
    misspelt one may have meant.

    Raises:
        ValueError: unknown field, wrong type, or settings that contradict each other.
    """
    try:
        return kind(**given)
    except ValidationError as error:
        items = error.errors()
    lines = []
    for item in items:
        name = ".".join(str(part) for part in item["loc"] if part not in (ONE, BY, MATRIX))
        if item["type"] == "extra_forbidden":
            lines.append(f"unknown setting {name!r}{meant(name, kind.model_fields)}")
            continue
        message = item["msg"].removeprefix("Value error, ")
        got = "" if item["type"] == "missing" else f" (got {item['input']!r})"
        lines.append(f"{name}: {message}{got}" if name else message)
    raise ValueError("; ".join(lines))


def check_options(given: Mapping[str, Any], family: Any) -> None:
    """Check the hyper-parameters of single algorithms, by "algorithm.option".

    Args:
        family: a root of algorithms, or its package: ``names()``, and ``get(name)`` with Options.

    Raises:
        ValueError: no algorithm has this option, it can't have this value, or options of one
            algorithm contradict each other.
    """
    for option in given:
        check_known("options: no algorithm", option.partition(".")[0], family.names())
    for name in family.names():
        with prefixed(f"options of {name}", ValueError, ValueError):
            parse(family.get(name).Options, own_options(given, name))


def read_profiles(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the settings of each profile of a folder by its name; relative paths start at the
    clone.
    """
    profiles = {}
    for path in sorted(folder.glob("*.toml")):
        profile = tomllib.loads(path.read_text(encoding="utf8"))
        places = {n: ROOT / v for n, v in profile.items() if n in ("data_dir", "models_path")}
        profiles[path.stem] = profile | places
    return profiles
