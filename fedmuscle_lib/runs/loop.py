"""A run in progress: rounds, checkpoints, and at the end a record.

It knows no store, and reports to a listener.
"""

from __future__ import annotations

import math
import os
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from fedmuscle_lib.core import versions
from fedmuscle_lib.core.errors import Diverged, RefusedMessage, line_of, out_of_memory
from fedmuscle_lib.core.torch_state import fixed_state
from fedmuscle_lib.runs.address import address_of
from fedmuscle_lib.runs.settings import RunSettings
from fedmuscle_lib.runs.store import Record, packed, unpacked
from fedmuscle_lib.runs.system import Tick, system_of

# Large tensors in huge pages, where Linux grants them on request. Torch reads this when it makes
# its first tensor.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")


class Listener:
    """Receiver of what a run in progress reports, in this process or another.

    This one keeps nothing.
    """

    def tick(self, tick: Tick) -> None:
        """A round is finished."""

    def keep(self, checkpoint: bytes) -> None:
        """Keep this in place of the last checkpoint."""

    def last(self) -> bytes | None:
        """Return the last checkpoint, if there is one."""
        return None

    def discard(self, why: str) -> None:
        """The last checkpoint is of no use."""


def train(settings: RunSettings, listener: Listener, models: Path | None = None) -> Record:
    """Train and evaluate, from the last checkpoint on if there is one.

    Args:
        models: folder that the trained models are written to.

    Raises:
        DataError, OSError: the data or a checkpoint is missing or damaged; the message names the
            file.
        Diverged: a local loss, or what a party sends, is no longer finite; the message names the
            party.
    """
    try:
        with fixed_state(settings.threads):
            training = _Training.resumed(settings, listener)
            record = training.complete()
            if models is not None:
                training.system.save(training.experiment, models)
            return record
    except Diverged as error:
        error.address = str(address_of(settings))
        raise


class _Training:
    def __init__(self, settings: RunSettings, listener: Listener) -> None:
        self.settings, self.listener = settings, listener
        address = address_of(settings)
        self.address, self.inputs = str(address), dict(address.inputs)
        self.system = system_of(settings)
        self.experiment = self.system.begin(settings)
        self.seconds, self.finished_rounds = 0.0, 0

    @classmethod
    def resumed(cls, settings: RunSettings, listener: Listener) -> _Training:
        """Return the run with its finished rounds.

        A checkpoint that is damaged, or another run's, is discarded.
        """
        training = cls(settings, listener)
        if (content := listener.last()) is None:
            return training
        try:
            training._restore(unpacked(content))
        except Exception as error:  # what is restored is whatever lay there
            if out_of_memory(error):
                raise
            return training._anew(error)
        listener.tick(Tick(settings.title, training.finished_rounds, settings.rounds, resumed=True))
        return training

    def _anew(self, error: Exception) -> _Training:
        """The run from its start, where its checkpoint is of no use."""
        why = f"{type(error).__name__}: {line_of(str(error))}"
        self.listener.discard(
            f"{self.settings.title}: its checkpoint can't be gone on from ({why})"
        )
        return _Training(self.settings, self.listener)

    def complete(self) -> Record:
        """The rounds that are left, then the result."""
        resumed = self.finished_rounds
        for round in range(resumed, self.settings.rounds):
            began = time.perf_counter()
            try:
                tick = self.experiment.round(round)
            except Diverged as error:
                error.within(f"round {round + 1}")
                raise
            except (OSError, RefusedMessage):  # which say nothing of the checkpoint: it stays
                raise
            except Exception as error:
                if not round or round != resumed or out_of_memory(error):
                    raise
                return self._anew(
                    error
                ).complete()  # states that are restored without a word may fit nothing
            self.seconds += time.perf_counter() - began
            self.finished_rounds = round + 1
            self.listener.keep(packed(self._checkpoint()))
            self.listener.tick(replace(tick, seconds=self.seconds))
        tables = {
            name: _table(name, self.experiment.rows[name], columns)
            for name, columns in self.system.tables.items()
        }
        return Record(tables, self._provenance())

    def _checkpoint(self) -> dict[str, Any]:
        return self.experiment.state() | {
            "address": self.address,
            "system": self.system.name,
            "settings": self.settings.recorded(),
            "finished_rounds": self.finished_rounds,
            "seconds": self.seconds,
            "rows": {name: self.experiment.rows[name] for name in self.system.tables},
        }

    def _restore(self, state: dict[str, Any]) -> None:
        if state["address"] != self.address:
            raise ValueError(f"it is of the run {state['address']}, not of {self.address}")
        finished, seconds, rows = state["finished_rounds"], state["seconds"], state["rows"]
        if (
            type(finished) is not int
            or not 0 < finished <= self.settings.rounds
            or not 0 <= seconds < math.inf
        ):
            raise ValueError(f"{finished} rounds in {seconds} s")
        if not all(
            row["round"] in range(1, finished + 1)
            for name in self.system.tables
            for row in rows[name]
        ):
            raise ValueError(f"it has rows of other rounds than the first {finished}")
        self.experiment.restore(state)
        own = self.experiment.state()
        if not _same(own, {name: state[name] for name in own}):
            raise ValueError("what was restored of it is not what it holds, or not finite")
        self.experiment.rows.update({name: rows[name] for name in self.system.tables})
        self.finished_rounds, self.seconds = finished, seconds

    def _provenance(self) -> dict[str, Any]:
        return {
            "address": self.address,
            "system": self.system.name,
            "settings": self.settings.recorded(),
            "versions": self.system.key(self.settings)["versions"],
            "inputs": self.inputs,
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": round(self.seconds, 1),
            "peak_memory_bytes": _peak_memory(),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "rounding": versions.ROUNDING,
            "processor": _processor(),
            "machine": (
                f"{platform.machine()}, {os.cpu_count()} cores, {torch.get_num_threads()} torch"
                " thread(s)"
            ),
            "device": self.settings.device,
            **self.experiment.facts(),
            "source": versions.SOURCE,
        }


def _table(
    name: str, rows: Sequence[Mapping[str, Any]], columns: Mapping[str, type]
) -> pd.DataFrame:
    """Make a table of rows; raises ValueError where they are not what the system says of it."""
    if rows and set().union(*rows) != columns.keys():
        raise ValueError(
            f"{name}: rows of {sorted(set().union(*rows))} where {sorted(columns)} are declared"
        )
    return pd.DataFrame(rows, columns=list(columns))


def _same(one: Any, other: Any) -> bool:
    """Return whether two states are equal to the bit, and all their tensors finite: a run with
    others ends before it keeps them.
    """
    if isinstance(one, torch.Tensor):
        return (
            isinstance(other, torch.Tensor)
            and one.dtype == other.dtype
            and torch.equal(one.cpu(), other)
            and bool(one.isfinite().all())
        )
    if isinstance(one, Mapping):
        return (
            isinstance(other, Mapping)
            and one.keys() == other.keys()
            and all(_same(one[key], other[key]) for key in one)
        )
    if isinstance(one, list | tuple):
        return (
            isinstance(other, list | tuple)
            and len(one) == len(other)
            and all(map(_same, one, other))
        )
    return type(one) is type(other) and (one == other or one != one)


def _peak_memory() -> int:
    """Return this process's peak memory in bytes; 0 on Windows, which has no ``resource``."""
    try:
        import resource
    except ImportError:
        return 0
    unit = 1 if platform.system() == "Darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _processor() -> str:
    """The kind of processor, on which floating-point results depend: its vendor's name, and what
    torch compiled its kernels for.
    """
    name = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf8") as file:
            name = next(
                (line.partition(":")[2].strip() for line in file if line.startswith("model name")),
                name,
            )
    except OSError:
        pass
    return f"{name}, {torch.backends.cpu.get_cpu_capability()}"
