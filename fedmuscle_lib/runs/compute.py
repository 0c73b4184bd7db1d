"""``run(settings) -> History``: compute a run once and read it afterwards.

An interrupted run is resumed after its last round.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
import torch

from fedmuscle_lib.core import versions
from fedmuscle_lib.core.errors import Diverged
from fedmuscle_lib.core.files import user_path
from fedmuscle_lib.core.torch_state import fixed_state
from fedmuscle_lib.runs.address import Address, address_of
from fedmuscle_lib.runs.history import History
from fedmuscle_lib.runs.progress import showing
from fedmuscle_lib.runs.settings import RunSettings, S
from fedmuscle_lib.runs.store import Entry, Record, Store, default_store
from fedmuscle_lib.runs.system import Experiment, Progress, Tick, system_of

# Large tensors in huge pages, where Linux grants them on request. Torch reads this when it makes
# its first tensor.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")


class NotStored(ValueError):
    """Runs are missing, and the environment says that none is to be computed."""


def run(
    settings: S,
    progress: Progress | None = None,
    store: Store | None = None,
    save_models: str | Path | None = None,
    on_round: Progress | None = None,
) -> History[S]:
    """Compute or fetch one run.

    Args:
        settings: what to run; their class says of which system.
        progress: called with a ``Tick`` after every round; by default a bar or a line shows them.
        store: where runs are kept; by default ``default_store()``.
        save_models: folder that the trained models are written to. A run that is stored is computed
            again for it, and compared.
        on_round: called with the ``Tick`` of every round that this call computes, after its
            checkpoint is kept and beside ``progress``. It runs in this process and thread. An error
            in it is logged, and the run goes on; an interrupt ends the run as any other.

    Raises:
        DataError, OSError: the data or a checkpoint is missing or damaged, or the store can't be
            written; the message names the file.
        NotOurs: something else lies in the place of the models to be saved.
        Diverged: a local loss, or what a party sends, is no longer finite; the message names the
            party.
        NotStored: FEDMUSCLE_COMPUTE is 0 and the run is not stored.
        ValueError: models are to be saved and the system keeps none, or a stored run that is
            computed again for them has other metrics.
    """
    if save_models is not None:
        save_models = user_path(save_models, "save_models")
        system_of(settings).claim(settings, save_models)
        # a folder that can't be made is refused before the run, not after it
        save_models.mkdir(parents=True, exist_ok=True)
    store = store or default_store()
    found = stored(settings, store)
    if found and save_models is None:
        return found
    refuse_to_compute([settings])
    address = address_of(settings)
    with showing(1, [settings], progress, on_round) as tell, TemporaryDirectory() as empty:
        place = Store(Path(empty)) if found else store
        compute_here(address, settings, place, tell, save_models)
        history = fetched(address, settings, place)
    if found and not history.metrics.equals(found.metrics):
        raise ValueError(
            f"{settings.title}: computed again for its models, its metrics are not those of the"
            f" {found.origin} run ({found.provenance.get('processor')}); the models in"
            f" {save_models} are those of this machine"
        )
    return found or history


def fetched(address: Address, settings: S, store: Store) -> History[S]:
    """The finished run of an address, computed here or shipped; raises NotStored if there is
    none.
    """
    found = store.find(address)
    if found is None:
        raise NotStored(f"{settings.title} is not stored")
    record, entry, caveats = found
    return History(
        settings,
        **record.tables,
        provenance=record.provenance,
        origin="shipped" if entry.shipped else "computed",
        caveats=caveats,
    )


def stored(settings: S, store: Store | None = None) -> History[S] | None:
    """The finished run, if there is one, computed here or shipped; computes nothing."""
    try:
        return fetched(address_of(settings), settings, store or default_store())
    except NotStored:
        return None


def refuse_to_compute(missing: Sequence[RunSettings]) -> None:
    """Raise ``NotStored`` where the environment says that nothing is to be computed."""
    if missing and not may_compute():
        others = f", nor are {len(missing) - 1} others" if len(missing) > 1 else ""
        raise NotStored(f"{missing[0].title} is not stored{others}")


def may_compute() -> bool:
    """Return whether a run that is not stored may be computed; the environment can say no."""
    return os.environ.get("FEDMUSCLE_COMPUTE") != "0"


def compute_here(
    address: Address,
    settings: RunSettings,
    store: Store,
    tell: Progress,
    models: Path | None = None,
) -> None:
    """Compute the run in this process and store it, unless another process has done so in the
    meantime and no models are wanted. Another process that is computing it is waited for.
    """
    entry = store.entry(address)
    with entry.lock():
        if models is not None or store.find(address) is None:
            record = train(
                settings, lambda tick: tell(replace(tick, address=entry.address)), entry, models
            )
            entry.save(record.pack())


# --- round after round


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


def _begun(settings: RunSettings, entry: Entry | None) -> tuple[Experiment, int, float]:
    """The experiment, its finished rounds and their seconds; from its start if there is no
    checkpoint that can be read.
    """
    begin = system_of(settings).begin
    experiment = begin(settings)
    if entry is None or not entry.checkpoint.exists():
        return experiment, 0, 0.0
    try:
        state = entry.load_checkpoint()
        experiment.restore(state)
        experiment.rows.update(state["rows"])
        return experiment, state["finished_rounds"], state["seconds"]
    except Exception as error:  # what is restored is whatever lay there
        entry.set_aside(entry.checkpoint, error)
        return begin(settings), 0, 0.0


def _round(experiment: Experiment, number: int) -> Tick:
    try:
        return experiment.round(number)
    except Diverged as error:
        if (place := f"round {number + 1}") not in str(error):
            error.args = (f"{error} ({place})",)
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
