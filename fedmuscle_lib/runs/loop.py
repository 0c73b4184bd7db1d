"""A run in progress: rounds, checkpoints, and at the end a record.

It knows no store, and reports to a listener.
"""

from __future__ import annotations

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
from fedmuscle_lib.core.errors import Diverged, out_of_memory
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

    def discard(self, error: Exception) -> None:
        """The last checkpoint can't be resumed from."""


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
        """Return the run with its finished rounds, or from its start if the checkpoint can't be
        read.
        """
        training = cls(settings, listener)
        if (content := listener.last()) is None:
            return training
        try:
            training._restore(unpacked(content))
        except Exception as error:  # what is restored is whatever lay there
            if out_of_memory(error):
                raise
            listener.discard(error)
            return cls(settings, listener)
        listener.tick(Tick(settings.title, training.finished_rounds, settings.rounds, resumed=True))
        return training

    def complete(self) -> Record:
        """The rounds that are left, then the result."""
        for round in range(self.finished_rounds, self.settings.rounds):
            began = time.perf_counter()
            try:
                tick = self.experiment.round(round)
            except Diverged as error:
                error.within(f"round {round + 1}")
                raise
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
        self.experiment.restore(state)
        self.experiment.rows.update({name: state["rows"][name] for name in self.system.tables})
        self.finished_rounds, self.seconds = state["finished_rounds"], state["seconds"]

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
