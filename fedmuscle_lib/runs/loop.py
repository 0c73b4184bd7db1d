"""A run in progress: rounds, checkpoints, and at the end a record.

Its checkpoints go to an entry of a store.
"""

from __future__ import annotations

import os
import platform
import time
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pandas as pd
import torch

from fedmuscle_lib.core import versions
from fedmuscle_lib.core.errors import Diverged, out_of_memory
from fedmuscle_lib.core.torch_state import fixed_state
from fedmuscle_lib.runs.address import address_of
from fedmuscle_lib.runs.settings import RunSettings
from fedmuscle_lib.runs.store import Entry, Record
from fedmuscle_lib.runs.system import Experiment, Progress, Tick, system_of

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
    address, system = address_of(settings), system_of(settings)
    about = {"address": str(address), "system": system.name, "settings": settings.recorded()}
    try:
        with fixed_state(settings.threads):
            experiment, finished, seconds = _begun(settings, entry)
            if finished:
                tell(Tick(settings.title, finished, settings.rounds, resumed=True))
            for number in range(finished, settings.rounds):
                began = time.perf_counter()
                tick = _round(experiment, number)
                seconds += time.perf_counter() - began
                if entry is not None:
                    rows = {name: experiment.rows[name] for name in system.tables}
                    so_far = {"finished_rounds": number + 1, "seconds": seconds, "rows": rows}
                    entry.save_checkpoint(experiment.state() | about | so_far)
                tell(replace(tick, seconds=seconds))
            tables = {
                name: pd.DataFrame(experiment.rows[name], columns=list(columns))
                for name, columns in system.tables.items()
            }
            provenance = about | {
                "versions": system.key(settings)["versions"],
                "inputs": dict(address.inputs),
                "finished": datetime.now(UTC).isoformat(timespec="seconds"),
                "seconds": round(seconds, 1),
                "peak_memory_bytes": _peak_memory(),
                "python": platform.python_version(),
                "torch": torch.__version__,
                "rounding": versions.ROUNDING,
                "processor": _processor(),
                "machine": (
                    f"{platform.machine()}, {os.cpu_count()} cores, {torch.get_num_threads()} torch"
                    " thread(s)"
                ),
                "device": settings.device,
                **experiment.facts(),
                "source": versions.SOURCE,
            }
            if models is not None:
                system.save(experiment, models)
            return Record(tables, provenance)
    except Diverged as error:
        error.address = str(address)
        raise


def _begun(settings: RunSettings, entry: Entry | None) -> tuple[Experiment, int, float]:
    """The experiment, its finished rounds and their seconds; from its start if there is no
    checkpoint that can be read.
    """
    begin = partial(system_of(settings).begin, settings)
    experiment = begin()
    try:
        if entry is None or (state := entry.load_checkpoint()) is None:
            return experiment, 0, 0.0
        experiment.restore(state)
        experiment.rows.update(state["rows"])
        return experiment, state["finished_rounds"], state["seconds"]
    except Exception as error:  # what is restored is whatever lay there
        if out_of_memory(error) or entry is None:
            raise
        entry.discard_checkpoint(error)
        return begin(), 0, 0.0


def _round(experiment: Experiment, number: int) -> Tick:
    try:
        return experiment.round(number)
    except Diverged as error:
        error.within(f"round {number + 1}")
        raise


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
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf8") as file:
        models = (line.partition(":")[2].strip() for line in file if line.startswith("model name"))
        name = next(models, name)
    return f"{name}, {torch.backends.cpu.get_cpu_capability()}"
