"""The seam between runs and the federations that they are runs of.

A system is a kind of federation: who its parties are, what they exchange, and what is measured. FedMuscle is one, FedLoGe another. Each
has settings of its own, a refinement of :class:`RunSettings`, and a :class:`System`. Everything else of this package knows neither: a
store, a checkpoint, a bar of progress and a pool of processes are the same for all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol

from fedmuscle_lib.core.registry import meant
from fedmuscle_lib.runs.settings import S

if TYPE_CHECKING:
    import pandas as pd

    from fedmuscle_lib.runs.progress import Tick
    from fedmuscle_lib.runs.store import Store

# The systems by name, and the modules that have them as ``SYSTEM``. A stored run names its system, so that no file can name a module.
SYSTEMS = {
    "fedmuscle": "fedmuscle_lib.fedmuscle.system",
    "fedloge": "fedmuscle_lib.fedloge.system",
    "bridge": "fedmuscle_lib.bridge.system",
}
FIRST = "fedmuscle"  # the system of stored runs that name none, since there was no other
TABLE_NAMES = ("metrics", "costs", "losses", "measures")  # of every run
# What columns of these names hold, whatever the system: kinds of numpy's types, of which an integer may stand for a number.
KINDS = dict.fromkeys(("round", "user", "client", "clients", "classes", "samples", "tested"), "iu")
KINDS |= dict.fromkeys(("uplink_bytes", "downlink_bytes", "flops", "flops_done"), "iu")
KINDS |= dict.fromkeys(("value", "local", "alignment"), "iuf") | {"masked": "b"}


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
