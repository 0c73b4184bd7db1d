"""``run_all``: several runs at a time, by Dask's workers on the cores of this machine or wherever a
scheduler has them.

A worker that has the store's folder locks the run, keeps its checkpoints and stores its result
there, as :func:`compute.compute_here` does. Another worker computes in a temporary folder. Both
return the finished run. When a worker dies, Dask hands its run to another one, which resumes after
the last checkpoint that it finds.
"""

from __future__ import annotations

import logging
import os
import queue
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch

from fedmuscle_lib.core import versions
from fedmuscle_lib.runs.address import Address, address_of, cached_digests
from fedmuscle_lib.runs.compute import (
    compute_here,
    fetched,
    may_compute,
    refuse_to_compute,
    stored,
)
from fedmuscle_lib.runs.history import History, setting_of
from fedmuscle_lib.runs.progress import showing
from fedmuscle_lib.runs.settings import RunSettings, S
from fedmuscle_lib.runs.store import Store, default_store
from fedmuscle_lib.runs.system import Progress, Tick, named

if TYPE_CHECKING:
    from distributed import Client  # a second that a run in this process need not wait for

_SECONDS_BETWEEN_LOOKS = 0.2
_SECONDS_TO_RESTART = 120.0  # a worker that ends while it starts is not always started again
_CONFIG = {
    "distributed.nanny.pre-spawn-environ": {},  # threads and memory as in the caller
    "distributed.worker.profile.enabled": False,
    "distributed.deploy.lost-worker-timeout": "1h",  # on a busy machine a worker starts slowly
}


def run_all(
    settings: Iterable[S],
    progress: Progress | None = None,
    store: Store | None = None,
    scheduler: str | None = None,
    on_round: Progress | None = None,
) -> list[History[S]]:
    """Compute or fetch several runs; their histories come in the given order.

    Each run takes its ``settings.threads`` of the cores that this process may use, which are
    ``torch.get_num_threads()``: OMP_NUM_THREADS where that is set, as ``reproduce`` does for each
    notebook. If that allows several at a time, worker processes compute them; if it does not, and
    on anything but a CPU, this process does. With a scheduler its workers compute.

    The first error, or an interrupt, ends the call: finished runs are in the store, and the others
    continue another time.

    Args:
        settings: what to run.
        progress: called with a ``Tick`` after every round, in this thread; by default a bar or
            lines show them.
        store: where runs are kept; by default ``default_store()``.
        scheduler: address of a Dask scheduler, such as "tcp://host:8786"; by default
            FEDMUSCLE_SCHEDULER, or none.
        on_round: as of ``run``. Workers send their ticks here, so that it is called in this process
            and thread whoever computes; rounds of several runs come interleaved, and
            ``Tick.address`` tells the runs apart.

    Raises:
        DataError, OSError, ValueError: as ``run``.
        ChildProcessError: workers died over a run again and again, as when memory runs out (the
            message names it), or the scheduler has.
        NotStored: FEDMUSCLE_COMPUTE is 0 and runs are not stored.
    """
    wanted, store = list(settings), store or default_store()
    scheduler = scheduler or os.environ.get("FEDMUSCLE_SCHEDULER")
    with cached_digests():
        addresses = [address_of(one) for one in wanted]
    # local training is the same run whatever the public set
    runs: dict[Address, S] = dict(zip(addresses, wanted, strict=True))
    missing = {address: one for address, one in runs.items() if store.find(address) is None}
    to_compute = list(missing.values())
    refuse_to_compute(to_compute)
    at_a_time = _affordable(to_compute)
    with showing(len(runs), to_compute, progress, on_round) as tell:
        if missing and (scheduler or at_a_time > 1):
            with _client(at_a_time, scheduler) as client:
                _compute_there(missing, store, tell, client)
        else:
            for address, one in missing.items():
                compute_here(address, one, store, tell)
    return [fetched(address, one, store) for address, one in zip(addresses, wanted, strict=True)]


def run_named(arms: Sequence[tuple[str, S]], compute: bool) -> list[History[S]]:
    """Compute or fetch runs, each given by its arm and settings. Where nothing may be computed,
    those of all arms but the first that are not stored are left out, with a warning.

    Raises:
        NotStored, and what else :func:`run_all` raises.
    """
    first, kept = arms[0][0], []
    with cached_digests():
        for arm, settings in arms:
            if arm == first or (compute and may_compute()) or stored(settings):
                kept.append((arm, settings))
            else:
                logging.getLogger("fedmuscle").warning(
                    "%s on seed %d is left out: it is not stored", arm, settings.seed
                )
    runs = run_all([settings for _, settings in kept])
    return [replace(run, setting=setting_of(arm)) for run, (arm, _) in zip(runs, kept, strict=True)]


def _affordable(runs: Sequence[RunSettings]) -> int:
    """Return how many of the runs to compute at a time."""
    if any(run.device != "cpu" for run in runs):
        return 1
    threads = max((run.threads for run in runs), default=1)
    return min(len(runs), max(1, torch.get_num_threads() // threads))


@contextmanager
def _client(count: int, scheduler: str | None) -> Iterator[Client]:
    """Connect to the scheduler, or to so many new workers on this machine; raises ValueError if the
    scheduler can't be reached.
    """
    import dask
    import distributed

    if scheduler:
        try:
            client = distributed.Client(scheduler, timeout="10s", set_as_default=False)
        except (OSError, ValueError) as error:
            raise ValueError(f"scheduler: {scheduler} can't be reached ({error})") from None
        with client:
            yield client
        return
    with (
        _without_main(),
        dask.config.set(_CONFIG),
        distributed.LocalCluster(
            n_workers=count,
            threads_per_worker=1,
            memory_limit=0,
            dashboard_address="127.0.0.1:0",
            silence_logs=logging.CRITICAL,
            security=True,  # who else could connect could run code
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


@contextmanager
def _without_main() -> Iterator[None]:
    """Keep new processes from importing the caller's program, so that a script needs no guard."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _compute_there(
    runs: Mapping[Address, RunSettings], store: Store, tell: Progress, client: Client
) -> None:
    """Compute the runs on the client's workers and store them; raises as :func:`run_all`."""
    import distributed

    store.root.mkdir(parents=True, exist_ok=True)
    ticks: queue.SimpleQueue[Tick] = queue.SimpleQueue()  # told in this thread
    topic = f"fedmuscle-{client.id}"
    client.subscribe_topic(topic, lambda event: ticks.put(Tick(**event[1]["tick"])))
    waiting = {
        client.submit(
            _work, topic, str(address), run.system, run.portable(), str(store.root.absolute()),
            versions.SOURCE, pure=False,
        ): (address, run)
        for address, run in runs.items()
    }  # fmt: skip
    while waiting:
        ended = [future for future in waiting if future.done()]  # their ticks came before
        while not ticks.empty():
            tell(ticks.get())
        try:
            for future in ended:
                address, run = waiting.pop(future)
                store.entry(address).save(future.result())
            if waiting and client.cluster:  # which a scheduler of somebody else's is not
                _, run = next(iter(waiting.values()))
                client.wait_for_workers(1, _SECONDS_TO_RESTART)
        except (
            distributed.KilledWorker,
            distributed.CancelledError,
            distributed.exceptions.WorkerStartTimeoutError,
        ):
            raise ChildProcessError(
                f"{run.title}: the process that computed it, or the scheduler, was ended again and"
                " again, as happens when memory runs out"
            ) from None
        if not ended:
            time.sleep(_SECONDS_BETWEEN_LOOKS)


def _work(
    topic: str, address: str, system: str, given: dict[str, Any], root: str, source: str
) -> bytes:
    """In a worker: compute a run and return its file.

    Raises:
        ValueError: this worker's library, data or checkpoints are not the caller's.
    """
    import distributed

    settings = named(system).settings(**given)
    own = address_of(settings)
    if (source, address) != (versions.SOURCE, str(own)):
        raise ValueError(
            f"{settings.title}: the worker's library, data or checkpoints are not the caller's; if"
            " a file was edited in the meantime, restart the caller (in JupyterLab: the kernel)"
        )
    worker = distributed.get_worker()
    task = worker.get_current_task()

    def tell(tick: Tick) -> None:
        worker.log_event(topic, {"tick": asdict(tick)})
        if worker.state.tasks[task].state != "executing":
            raise ChildProcessError("the caller is gone")

    with TemporaryDirectory() as folder:
        store = Store(Path(root if os.path.isdir(root) else folder))
        compute_here(own, settings, store, tell)
        return store.entry(own).path.read_bytes()
