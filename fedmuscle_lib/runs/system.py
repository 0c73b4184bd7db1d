"""The seam between runs and the federations that they are runs of.

A system is a kind of federation: who its parties are, what they exchange, and what is measured.
FedMuscle is one, FedLoGe another. Each has settings of its own, a refinement of
:class:`RunSettings`, and a :class:`System`. Everything else of this package knows neither: a store,
a checkpoint, a bar of progress and worker processes are the same for all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol

import pandas as pd

from fedmuscle_lib.core.files import Json
from fedmuscle_lib.core.registry import check_known
from fedmuscle_lib.core.training import State
from fedmuscle_lib.core.versions import versions
from fedmuscle_lib.runs.settings import RunSettings, S

# The systems by name, and the modules that have them as ``SYSTEM``. A stored run names its system,
# so that no file can name a module.
SYSTEMS = {
    "fedmuscle": "fedmuscle_lib.fedmuscle.system",
    "fedloge": "fedmuscle_lib.fedloge.system",
    "creamfl": "fedmuscle_lib.creamfl.system",
}
Rows = dict[str, list[dict[str, Any]]]  # of each table, by the names of its columns
Tables = Mapping[str, Mapping[str, type]]  # a run's tables, and the type of each of their columns


@dataclass(frozen=True)
class Tick:
    """A round of a run is finished, or a run is resumed after one.

    Attributes:
        run: the run's name, such as "fedmuscle voc seed 0".
        round, rounds: which one, from 1, of how many.
        users: how many took part in it; 0 where a run is resumed.
        local_loss, alignment_loss: mean over users; None where there was none.
        metrics: at the round's end, by user, in the task's units, or by name; empty where the round
            was not evaluated.
        seconds: since the run began, whatever process computed it.
        resumed: whether the run is resumed after this round, which an earlier process finished.
        address: the run's, which tells it from others of its name.
    """

    run: str
    round: int
    rounds: int
    users: int = 0
    local_loss: float | None = None
    alignment_loss: float | None = None
    metrics: tuple[tuple[int | str, float], ...] = ()
    seconds: float = 0.0
    resumed: bool = False
    address: str = ""


Progress = Callable[[Tick], object]


class Experiment(Protocol):
    """A federation between two rounds of a run.

    Attributes:
        rows: what was measured so far, by table; the run's tables are made of it.
    """

    rows: Rows

    def round(self, round: int) -> Tick:
        """Do a round (from 0), evaluate it where it is due, and tell of it."""

    def state(self) -> State:
        """Return all that the remaining rounds depend on, as tensors and plain containers."""

    def restore(self, state: State) -> None:
        """Continue from what :meth:`state` returned."""

    def facts(self) -> Json:
        """Return what the run's provenance says beside what every run's says, as JSON values."""


class FederatedRounds(Generic[S]):
    """Base of experiments whose federation has a server and clients by number, each with ``state``
    and ``restore``.

    Attributes:
        rows: see :class:`Experiment`.
    """

    def __init__(self, settings: S, federation: Any) -> None:
        self.settings, self.federation = settings, federation
        self.rows: Rows = defaultdict(list)

    def state(self) -> State:
        clients = self.federation.clients.items()
        return {
            "server": self.federation.server.state(),
            "clients": {number: client.state() for number, client in clients},
        }

    def restore(self, state: State) -> None:
        self.federation.server.restore(state["server"])
        for number, client in self.federation.clients.items():
            client.restore(state["clients"][number])


class System(ABC, Generic[S]):
    """A kind of federation.

    Attributes:
        name: in SYSTEMS.
        settings: the class of its settings.
        tables: of its runs, with the type of each column: int, float, bool or str. All have a
            column "round", and no number in "metrics" may be infinite or missing. Stored runs are
            read by it.
    """

    name: ClassVar[str]
    settings: type[S]
    tables: ClassVar[Tables]

    @abstractmethod
    def key(self, settings: S) -> Json:
        """Return what a run is asked for, as JSON values: equal for settings that differ in nothing
        that the run looks at.

        "versions" holds those of the arithmetic, by name.
        """

    @abstractmethod
    def inputs(self, settings: S) -> dict[str, str]:
        """Return a hash of each thing that the run reads from disk, by name; empty for what is not
        there.
        """

    @abstractmethod
    def begin(self, settings: S) -> Experiment:
        """Read what the federation needs and put it together.

        Raises:
            DataError, OSError: data are missing or damaged; the message names the file.
        """

    def claim(self, settings: S, folder: Path) -> None:
        """Check that :meth:`save` replaces nothing in ``folder`` but models that were saved there
        before.

        Raises:
            NotOurs: it would; the message names it.
            ValueError: the system keeps no models, as by default.
        """
        raise ValueError(f"runs of {self.name} keep no models")

    def save(self, experiment: Experiment, folder: Path) -> None:
        """Write the trained models of a finished run.

        Raises:
            NotOurs: as :meth:`claim`.
            OSError: the folder can't be written.
        """
        raise NotImplementedError

    def per_sample(self, settings: S, metrics: pd.DataFrame) -> pd.Series:
        """Return by how much each row's value moves if one evaluation sample is judged otherwise;
        by default, none may be.
        """
        return 0 * metrics.value


def named(name: str) -> System[Any]:
    """Return a system by its name; raises ValueError if there is none."""
    check_known("unknown system", name, SYSTEMS)
    return import_module(SYSTEMS[name]).SYSTEM


def system_of(settings: S) -> System[S]:
    """Return the system whose settings these are."""
    return named(settings.system)


def key_of(settings: RunSettings, core: int, *kinds: Any) -> Json:
    """:meth:`System.key` of settings with ``options``.

    Args:
        core: the version of what every run of the system computes by.
        kinds: the algorithm's class, whose the options are, and others with versions.
    """
    return {
        "system": settings.system,
        "settings": settings.relevant({"algorithm", "profile", "options"} | settings.places()),
        "options": kinds[0].Options(**settings.own_options).model_dump(mode="json"),
        "versions": {"core": str(core)} | versions(*kinds),
    }
