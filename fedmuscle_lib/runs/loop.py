"""A run in progress: rounds, checkpoints, and at the end a record.

Its checkpoints go to an entry of a store.
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
from fedmuscle_lib.runs.store import Entry, Record, packed, unpacked
from fedmuscle_lib.runs.system import Progress, Tick, system_of

# Large tensors in huge pages, where Linux grants them on request. Torch reads this when it makes
# its first tensor.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")


def train(
    settings: RunSettings,
    tell: Progress = lambda tick: None,
    entry: Entry | None = None,
    models: Path | None = None,
) -> Record:
    """Train and evaluate, from the last checkpoint on if there is one.

    Args:
        tell: called with each tick.
        entry: where checkpoints are kept; none are if it is None.
        models: folder that the trained models are written to.

    Raises:
        DataError, OSError: the data or a checkpoint is missing or damaged; the message names the
            file.
        Diverged: a local loss, or what a party sends, is no longer finite; the message names the
            party.
    """
    try:
        with fixed_state(settings.threads):
            training = _Training.resumed(settings, tell, entry)
            record = training.complete()
            if models is not None:
                training.system.save(training.experiment, models)
            return record
    except Diverged as error:
        error.address = str(address_of(settings))
        raise


class _Training:
    def __init__(self, settings: RunSettings, tell: Progress, entry: Entry | None) -> None:
        self.settings, self.tell, self.entry = settings, tell, entry
        address = address_of(settings)
        self.address, self.inputs = str(address), dict(address.inputs)
        self.system = system_of(settings)
        self.experiment = self.system.begin(settings)
        self.seconds, self.finished_rounds = 0.0, 0

    @classmethod
    def resumed(cls, settings: RunSettings, tell: Progress, entry: Entry | None) -> _Training:
        """Return the run with its finished rounds, or from its start if the checkpoint can't be
        read.
        """
        training = cls(settings, tell, entry)
        if entry is None or (content := entry.load_checkpoint()) is None:
            return training
        try:
            training._restore(unpacked(content))
        except Exception as error:  # what is restored is whatever lay there
            if out_of_memory(error):
                raise
            entry.discard_checkpoint(error)
            return cls(settings, tell, entry)
        tell(Tick(settings.title, training.finished_rounds, settings.rounds, resumed=True))
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
            if self.entry is not None:
                self.entry.save_checkpoint(packed(self._checkpoint()))
            self.tell(replace(tick, seconds=self.seconds))
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
