"""The seam between runs and the federations that they are runs of.

A system is a kind of federation: who its parties are, what they exchange, and what is measured. FedMuscle is one, FedLoGe another. Each
has settings of its own, a refinement of :class:`RunSettings`, and a :class:`System`. Everything else of this package knows neither: a
store, a checkpoint, a bar of progress and a pool of processes are the same for all.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar, get_args

import torch
from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from fedmuscle_lib.registry import meant

if TYPE_CHECKING:
    import pandas as pd

    from fedmuscle_lib.runs.progress import Tick
    from fedmuscle_lib.runs.store import Store

# The systems by name, and the modules that have them as ``SYSTEM``. A stored run names its system, so that no file can name a module.
SYSTEMS = {
    "fedmuscle": "fedmuscle_lib.experiment",
    "fedloge": "fedmuscle_lib.fedloge.system",
    "bridge": "fedmuscle_lib.bridge.system",
}
FIRST = "fedmuscle"  # the system of stored runs that name none, since there was no other
LARGEST = 2**53  # whole number in a setting; tables and JSON keep it exactly, and no count or seed needs a larger one
BY = "by task"  # in the place of an error: a value of those that a setting has by task
_UNFIT = re.compile("[\x00-\x1f\ud800-\udfff]")
TABLE_NAMES = ("metrics", "costs", "losses", "measures")  # of every run
# What columns of these names hold, whatever the system: kinds of numpy's types, of which an integer may stand for a number.
KINDS = dict.fromkeys(("round", "user", "client", "clients", "classes", "samples", "tested"), "iu")
KINDS |= dict.fromkeys(("uplink_bytes", "downlink_bytes", "flops", "flops_done"), "iu")
KINDS |= dict.fromkeys(("value", "local", "alignment"), "iuf") | {"masked": "b"}

V = TypeVar("V")


class RunSettings(BaseModel):
    """What a run is asked for: frozen and strict. An unknown or mistyped field is an error that names it.

    Attributes:
        system: its name in SYSTEMS.
        telling: settings by which runs are told apart where they are listed, beside profile and seed.
        profile: which numbers, data and checkpoints.
        seed: of all random draws.
        rounds: how many.
        threads: torch threads of the run.
        device: a torch device; "auto" becomes the name of one (:func:`best_device`), so that no address has it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    system: ClassVar[str]
    telling: ClassVar[tuple[str, ...]] = ()

    profile: str
    seed: int
    rounds: int
    threads: int
    device: str

    @field_validator("*")
    @classmethod
    def _can_be_kept(cls, value: V) -> V:
        """Refuse numbers that tables do not keep, and texts that are none, however deep in a value."""
        waiting: list[Any] = [value]
        while waiting:
            part = waiting.pop()
            if isinstance(part, dict):
                waiting += [*part.keys(), *part.values()]
            elif isinstance(part, list | tuple):
                waiting += part
            elif isinstance(part, BaseModel):
                waiting += vars(part).values()
            elif isinstance(part, int) and abs(part) > LARGEST:
                raise ValueError(f"whole numbers go up to {LARGEST}")
            elif isinstance(part, str) and _UNFIT.search(part):
                raise ValueError("a text has no control characters and no halves of characters")
            elif isinstance(part, Path) and "\0" in str(part):
                raise ValueError("no path has a null character")
        return value

    @field_validator("device")
    @classmethod
    def _found(cls, device: str) -> str:
        return best_device() if device == "auto" else device

    @property
    def title(self) -> str:
        """The run's name in lines of progress and in errors, such as "fedmuscle voc seed 0"."""
        raise NotImplementedError

    def usual(self) -> Mapping[str, Any]:
        """The values of the settings' profile."""
        raise NotImplementedError

    @classmethod
    def places(cls) -> set[str]:
        """Settings that say where things are, and not what they are."""
        return {name for name, field in cls.model_fields.items() if Path in (field.annotation, *get_args(field.annotation))}

    def recorded(self) -> dict[str, Any]:
        """The settings as JSON values, without places."""
        return self.model_dump(mode="json", exclude=self.places())

    def portable(self) -> dict[str, Any]:
        """The settings as JSON values, without the places that the profile gives, which another machine has elsewhere."""
        usual = self.usual()
        return self.model_dump(mode="json", exclude={name for name in self.places() if getattr(self, name) == usual.get(name)})

    def seen(self, exclude: set[str]) -> dict[str, Any]:
        """What a run sees of the settings, as JSON values: all but ``exclude`` and those that change nothing.

        A setting that was added when runs were stored already names the value at which it changes nothing, as
        ``json_schema_extra={"neutral": value}``. At this value it is left out, and the stored runs keep their addresses.
        """
        extras = {name: field.json_schema_extra for name, field in type(self).model_fields.items()}
        own = {name: extra for name, extra in extras.items() if isinstance(extra, dict) and "neutral" in extra}
        neutral = {name for name, extra in own.items() if getattr(self, name) == extra["neutral"]}
        return self.model_dump(mode="json", exclude=exclude | neutral)


def best_device() -> str:
    """The first GPU by CUDA if there is one, then Apple's by MPS, else the CPU."""
    if torch.cuda.is_available():
        return "cuda:0"
    return "mps" if torch.backends.mps.is_available() else "cpu"


S = TypeVar("S", bound=RunSettings)


def parse(kind: type[S], given: dict[str, Any]) -> S:
    """``kind(**given)`` with an error that a person can act on: one line a setting, and what a misspelt one may have meant.

    Raises:
        ValueError: unknown field, wrong type, or settings that contradict each other.
    """
    try:
        return kind(**given)
    except ValidationError as error:
        raise _explained(error, kind) from None


def _explained(error: ValidationError, settings: type[RunSettings]) -> ValueError:
    lines = []
    for item in error.errors():
        name = ".".join(str(part) for part in item["loc"][:1])
        if item["loc"][1:2] == (BY,):
            name += f" of {item['loc'][2]}"
        if item["type"] == "extra_forbidden":
            lines.append(f"unknown setting {name!r}{meant(name, settings.model_fields)}")
        else:
            message = item["msg"].removeprefix("Value error, ")
            lines.append(f"{name}: {message} (got {item['input']!r})" if name else message)
    return ValueError("; ".join(lines))


def check_options(given: Mapping[str, Any], kinds: Mapping[str, type[BaseModel]]) -> None:
    """Check the hyper-parameters of single algorithms, by "algorithm.option".

    Args:
        kinds: each algorithm's own options, by its name.

    Raises:
        ValueError: no algorithm has this option, or it can't have this value.
    """
    known = {f"{name}.{option}": kind for name, kind in kinds.items() for option in kind.model_fields}
    for name, value in given.items():
        if name not in known:
            raise ValueError(f"options: no {name!r}{meant(name, known)}")
        try:
            known[name](**{name.partition(".")[2]: value})
        except ValidationError as error:
            raise ValueError(f"options: {name}: {error.errors()[0]['msg']} (got {value!r})") from None


class Experiment(Protocol):
    """A federation between two rounds of a run.

    Attributes:
        rows: what was measured so far, by table; ``train`` makes the run's tables of it.
    """

    rows: dict[str, list[dict[str, Any]]]

    def round(self, round: int) -> Tick:
        """Do a round (from 0), evaluate it where it is due, and tell of it."""

    def resumed(self, finished: int) -> Tick:
        """Tell that the run goes on after ``finished`` rounds."""

    def state(self) -> dict[str, Any]:
        """What the rounds that are left depend on, as tensors and plain containers."""

    def restore(self, state: dict[str, Any]) -> None:
        """Go on with what :meth:`state` gave."""

    def facts(self) -> dict[str, Any]:
        """What the run's provenance says beside what every run's says, as JSON values."""


class System(ABC, Generic[S]):
    """A kind of federation.

    Attributes:
        name: in SYSTEMS.
        settings: the class of its settings.
        tables: columns of each of TABLE_NAMES.
        keeps_models: whether :meth:`save` can write a run's models.
    """

    name: ClassVar[str]
    settings: type[S]
    tables: ClassVar[Mapping[str, tuple[str, ...]]]
    keeps_models: ClassVar[bool] = False

    @abstractmethod
    def asked(self, settings: S) -> dict[str, Any]:
        """What a run is asked for, as JSON values: equal for settings that differ in nothing that the run looks at.

        Under "versions" stand those of the arithmetic, by name.
        """

    @abstractmethod
    def inputs(self, settings: S) -> dict[str, str]:
        """A hash of each thing that the run reads from disk, by name; empty for what is not there."""

    @abstractmethod
    def begin(self, settings: S) -> Experiment:
        """Read what the federation needs and put it together.

        Raises:
            DataError, OSError: data are missing or damaged; the message names the file.
        """

    def save(self, experiment: Experiment, folder: Path) -> None:
        """Write the trained models of a finished run.

        Raises:
            OSError: the folder can't be written.
        """
        raise NotImplementedError

    def per_sample(self, settings: S, metrics: pd.DataFrame) -> pd.Series:
        """By how much each row's value moves if one evaluation sample is judged otherwise; by default, nothing may be judged otherwise."""
        return 0 * metrics.value

    def gain(self, settings: S, store: Store) -> Callable[[Tick], float | None]:
        """A function that says, of a round's metrics, by how many per cent they are above the baseline's that is stored, if one is."""
        return lambda tick: None


def named(name: str) -> System[Any]:
    """A system by its name.

    Raises:
        ValueError: there is none.
    """
    if name not in SYSTEMS:
        raise ValueError(f"unknown system {name!r}{meant(name, SYSTEMS)}")
    return import_module(SYSTEMS[name]).SYSTEM


def system_of(settings: S) -> System[S]:
    """The system whose settings these are."""
    return named(settings.system)
