"""``run_all``: several runs at a time, on the cores of this machine or on the workers of a Dask scheduler.

The process that asks holds the store: it locks a run, submits it to a ``concurrent.futures.Executor``, keeps the checkpoints and passes
on the ticks that come back, and stores the result, which is the future's value. A worker needs the library and the data, and no disk in
common. When a worker dies, its runs go on after their last finished round.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Future
from contextlib import ExitStack
from dataclasses import dataclass

import torch

from fedmuscle_lib.core import versions
from fedmuscle_lib.runs.address import Address, address_of
from fedmuscle_lib.runs.compute import Desk, compute_here, fetched, refuse_to_compute
from fedmuscle_lib.runs.crew import Crew, Result, WorkerLost, crew
from fedmuscle_lib.runs.history import History
from fedmuscle_lib.runs.progress import Progress, heard_by, showing
from fedmuscle_lib.runs.settings import RunSettings, S
from fedmuscle_lib.runs.store import Busy, Entry, Store, default_store

_ATTEMPTS = 3  # of a run whose worker dies before it has finished another round
_SECONDS_BETWEEN_LOOKS = 1.0  # at a run that another process computes


def run_all(
    settings: Iterable[S],
    progress: Progress | None = None,
    store: Store | None = None,
    scheduler: str | None = None,
    on_round: Progress | None = None,
) -> list[History[S]]:
    """Compute or fetch several runs; their histories come in the given order.

    Each run takes its ``settings.threads`` of the cores that this process may use, which are ``torch.get_num_threads()``: OMP_NUM_THREADS
    where that is set, as ``reproduce`` does for each notebook. If that allows several at a time, worker processes compute them; if it does
    not, and on anything but a CPU, this process does. With a scheduler its workers compute.

    A run that is computed elsewhere is put off while others can be done. The first error, or an interrupt, ends the call: what is
    finished is in the store, and what was begun continues another time.

    Args:
        settings: what to run.
        progress: called with a ``Tick`` after every round, in this thread; by default a bar shows them.
        store: where runs are kept; by default ``default_store()``.
        scheduler: address of a Dask scheduler, such as "tcp://host:8786"; by default FEDMUSCLE_SCHEDULER, or none.
        on_round: as of ``run``. Workers send their ticks here, so that it is called in this process and thread whoever computes; rounds
            of several runs come interleaved, and ``Tick.address`` tells the runs apart.

    Raises:
        DataError, OSError, ValueError: as ``run``.
        ChildProcessError: workers died over a run again and again, as when memory runs out; the message names it.
        NotStored: FEDMUSCLE_COMPUTE is 0 and runs are not stored.
    """
    wanted, store = list(settings), store or default_store()
    scheduler = scheduler or os.environ.get("FEDMUSCLE_SCHEDULER")
    addresses = [address_of(one) for one in wanted]
    runs: dict[Address, S] = {}
    for address, one in zip(addresses, wanted, strict=True):  # local training is the same run whatever the public set
        runs.setdefault(address, one)
    missing = {address: one for address, one in runs.items() if store.find(address) is None}
    unknown = list(missing.values())
    refuse_to_compute(unknown)
    at_a_time = len(missing) if scheduler else _affordable(unknown)
    with showing(len(runs), unknown, progress) as shown:
        tell = heard_by(on_round, shown)
        if at_a_time > 1 or scheduler and missing:
            _Dispatch(store, tell, at_a_time, scheduler).compute(missing)
        else:
            _compute_here(missing, store, tell)
    return [fetched(address, one, store) for address, one in zip(addresses, wanted, strict=True)]


def _affordable(runs: Sequence[RunSettings]) -> int:
    """How many of the runs to compute at a time."""
    if any(run.device != "cpu" for run in runs):
        return 1
    threads = max((run.threads for run in runs), default=1)
    return min(len(runs), max(1, torch.get_num_threads() // threads))


def _compute_here(runs: Mapping[Address, RunSettings], store: Store, tell: Progress) -> None:
    """One after the other; a run that turns out to be computed elsewhere goes to the end of the line, and is waited for there."""
    line = deque((address, run, False) for address, run in runs.items())
    while line:
        address, run, patient = line.popleft()
        try:
            compute_here(address, run, store, tell, wait=patient)
        except Busy:
            line.append((address, run, True))


@dataclass
class _Job:
    """A run in the hands of a worker; ``held`` gives its lock back."""

    address: Address
    run: RunSettings
    entry: Entry
    desk: Desk
    held: ExitStack


class _Dispatch:
    """Runs on their way through an executor."""

    def __init__(self, store: Store, tell: Progress, at_a_time: int, scheduler: str | None) -> None:
        self._store, self._tell, self._at_a_time, self._scheduler = store, tell, at_a_time, scheduler
        self._jobs: dict[str, _Job] = {}  # by address
        self._fruitless: dict[str, int] = {}  # attempts since the last finished round

    def compute(self, runs: Mapping[Address, RunSettings]) -> None:
        line = deque(runs.items())
        try:
            while line:
                with crew(self._at_a_time, self._scheduler) as workers:
                    try:
                        self._work_off(line, workers)
                    except WorkerLost as error:  # with it goes the whole crew, and what was in its hands goes on with another
                        line.extendleft((job.address, job.run) for job in self._given_back(str(error)))
        finally:
            for job in self._jobs.values():
                job.held.close()
            self._jobs.clear()

    def _work_off(self, line: deque[tuple[Address, RunSettings]], workers: Crew) -> None:
        while line or self._jobs:
            self._hand_out(line, workers)
            message = workers.hear(_SECONDS_BETWEEN_LOOKS)
            if message is None:
                continue
            what, address, content = message
            if (job := self._jobs.get(address)) is None:  # a last word about a run that is finished
                continue
            if what == "tick":
                job.desk.tick(content)
            elif what == "keep":
                self._fruitless[address] = 0
                job.desk.keep(content)
            elif what == "discard":
                job.desk.discard(content)
            elif what == "done":
                self._finish(address, content)

    def _hand_out(self, line: deque[tuple[Address, RunSettings]], workers: Crew) -> None:
        """As many runs as there is room for; those that another process is computing stay in the line."""
        for _ in range(len(line)):
            if len(self._jobs) >= self._at_a_time:
                return
            address, run = line.popleft()
            entry = self._store.entry(address)
            with ExitStack() as lock:
                try:
                    lock.enter_context(entry.lock(wait=False))
                except Busy:
                    line.append((address, run))
                    continue
                if self._store.find(address):  # it was finished elsewhere in the meantime
                    continue
                held = lock.pop_all()
            job = _Job(address, run, entry, Desk(run, entry, self._store, self._tell), held)
            self._jobs[str(address)] = job
            self._fruitless[str(address)] = self._fruitless.get(str(address), 0) + 1
            workers.submit(str(address), run.system, run.portable(), job.desk.last())

    def _finish(self, address: str, future: Future[Result]) -> None:
        """Store what a worker has computed.

        Raises:
            ValueError: it computed something else than what this process asked for.
        """
        try:
            result = future.result()
        except BrokenExecutor as error:
            raise WorkerLost(str(error)) from None
        job = self._jobs[address]
        if result.source != versions.SOURCE:
            raise ValueError(
                f"{job.run.title}: the worker's library is not the one that this process imported; if a file was edited in the "
                "meantime, restart this process (in JupyterLab: the kernel)"
            )
        if result.address != address:
            raise ValueError(f"{job.run.title}: the worker's data or checkpoints are not those that lie here")
        job.entry.save(result.record)
        del self._jobs[address]
        job.held.close()

    def _given_back(self, why: str) -> list[_Job]:
        """What was in the workers' hands.

        Raises:
            ChildProcessError: one of the runs was begun in vain too often.
        """
        jobs = list(self._jobs.values())
        for address, job in self._jobs.items():
            job.held.close()
            if self._fruitless[address] >= _ATTEMPTS:
                raise ChildProcessError(
                    f"{job.run.title}: the process that computed it was ended {_ATTEMPTS} times before it had finished another round, "
                    f"as happens when memory runs out ({why})"
                )
        self._jobs.clear()
        return jobs
