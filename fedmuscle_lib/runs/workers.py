"""``run_all``: several runs at a time, by Dask's workers on the cores of this machine or wherever a
scheduler has them.

The process that asks holds the store: it locks a run, submits it, stores its checkpoints and its
result, and passes ticks on. A worker reports through a queue of the scheduler's, which keeps no
message once it is read; it needs the library and the data, and no disk in common. When a worker
dies, another one resumes its run after the last finished round.

On one machine the connections are encrypted, and both sides know a key that is made for the call:
who else could connect could run code.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from fedmuscle_lib.core import versions
from fedmuscle_lib.core.errors import line_of
from fedmuscle_lib.core.files import python_path
from fedmuscle_lib.runs.address import Address, address_of, cached_digests
from fedmuscle_lib.runs.compute import StoringListener, compute_here, fetched, refuse_to_compute
from fedmuscle_lib.runs.history import History
from fedmuscle_lib.runs.loop import Listener, train
from fedmuscle_lib.runs.progress import also_calling, showing
from fedmuscle_lib.runs.settings import RunSettings, S
from fedmuscle_lib.runs.store import Busy, Entry, Store, default_store
from fedmuscle_lib.runs.system import Progress, Tick, named

if TYPE_CHECKING:
    from distributed import (
        Client,
        Future,
        Queue,
    )  # a second that a run in this process need not wait for

_ATTEMPTS = 3  # of a run whose worker dies before it has finished another round
_SECONDS_BETWEEN_LOOKS = 0.2
_SECONDS_WITHOUT_WORKERS = 60.0  # on this machine, where they come at once
_MESSAGES = 16  # that wait to be read; then workers wait
_PATIENCE = "10 minutes"  # of a worker; a caller that reads nothing for so long is gone
_CLUSTER = Path(__file__).with_name("cluster.py")


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

    A run that is computed elsewhere is put off while others can be done. The first error, or an
        interrupt, ends the call: what is
    finished is in the store, and what was begun continues another time.

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
        DataError, OSError, ValueError: as ``run``. ChildProcessError: workers died over a run again
        and again, as when memory runs out (the message names it), or the scheduler has. NotStored:
        FEDMUSCLE_COMPUTE is 0 and runs are not stored.
    """
    wanted, store = list(settings), store or default_store()
    scheduler = scheduler or os.environ.get("FEDMUSCLE_SCHEDULER")
    with cached_digests():
        addresses = [address_of(one) for one in wanted]
    runs: dict[Address, S] = {}
    for address, one in zip(
        addresses, wanted, strict=True
    ):  # local training is the same run whatever the public set
        runs.setdefault(address, one)
    missing = {address: one for address, one in runs.items() if store.find(address) is None}
    unknown = list(missing.values())
    refuse_to_compute(unknown)
    at_a_time = len(missing) if scheduler else _affordable(unknown)
    with showing(len(runs), unknown, progress) as shown:
        tell = also_calling(on_round, shown)
        if at_a_time > 1 or scheduler and missing:
            with _connected(at_a_time, scheduler) as client:
                _Dispatch(store, tell, client, at_a_time, local=not scheduler).compute(missing)
        else:
            _compute_here(missing, store, tell)
    return [fetched(address, one, store) for address, one in zip(addresses, wanted, strict=True)]


def _affordable(runs: Sequence[RunSettings]) -> int:
    """Return how many of the runs to compute at a time."""
    if any(run.device != "cpu" for run in runs):
        return 1
    threads = max((run.threads for run in runs), default=1)
    return min(len(runs), max(1, torch.get_num_threads() // threads))


def _compute_here(runs: Mapping[Address, RunSettings], store: Store, tell: Progress) -> None:
    """Compute one after the other.

    A run that is computed elsewhere goes to the end of the line, where it is waited for.
    """
    line = deque((address, run, False) for address, run in runs.items())
    while line:
        address, run, patient = line.popleft()
        try:
            compute_here(address, run, store, tell, wait=patient)
        except Busy:
            line.append((address, run, True))


@contextmanager
def _connected(count: int, scheduler: str | None) -> Iterator[Client]:
    """Connect to the scheduler, or to one of this machine with so many workers; raises ValueError
    if it can't be reached.
    """
    import distributed

    with ExitStack() as stack:
        address, security = (scheduler, None) if scheduler else stack.enter_context(_cluster(count))
        try:
            client = distributed.Client(
                address, timeout="10s", set_as_default=False, security=security
            )
        except (OSError, ValueError) as error:
            raise ValueError(f"scheduler: {address} can't be reached ({error})") from None
        yield stack.enter_context(client)


@contextmanager
def _cluster(count: int) -> Iterator[tuple[str, Any]]:
    """Start ``cluster`` and yield the scheduler's address and the keys; at the end nothing of it is
    left.
    """
    from distributed.security import Security

    security = Security.temporary()
    environment = os.environ | {
        "PYTHONPATH": python_path(),
        "DASK_LOGGING__DISTRIBUTED": "critical",
    }
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    # a session of its own: Ctrl-C reaches this process alone, which then ends the others
    with subprocess.Popen(
        [sys.executable, "-P", str(_CLUSTER)], env=environment, start_new_session=True, **pipes
    ) as process:
        keys = {
            name: key
            for name in security.__slots__
            if isinstance(key := getattr(security, name), str)
        }
        print(
            json.dumps({"workers": count, "security": {"require_encryption": True} | keys}),
            file=process.stdin,
            flush=True,
        )
        answer = process.stdout.readline().strip()  # type: ignore[union-attr]
        if "://" not in answer.partition(" ")[0]:
            why = line_of(answer) or "their process ended without a word"
            raise ChildProcessError(
                f"no workers could be started ({why}); OMP_NUM_THREADS=1 computes one run at a"
                " time, without workers"
            )
        yield answer, security


@dataclass
class _Job:
    """A run in the hands of the scheduler.

    Attributes:
        held: gives its lock back. submitted, begun: how often, since it last finished a round; a
        scheduler may begin a run again by itself.
    """

    address: Address
    run: RunSettings
    entry: Entry
    listener: StoringListener
    held: ExitStack
    future: Future
    submitted: int = 1
    begun: int = 0

    def refuse_another(self, attempts: int) -> None:
        """Raise ChildProcessError if the run was begun so often in vain."""
        if attempts >= _ATTEMPTS:
            raise ChildProcessError(
                f"{self.run.title}: the process that computed it was ended {_ATTEMPTS} times before"
                " it had finished another round, as happens when memory runs out"
            )


class _Dispatch:
    """Runs on their way to workers and back."""

    def __init__(
        self, store: Store, tell: Progress, client: Client, at_a_time: int, local: bool
    ) -> None:
        import distributed

        self._store, self._tell, self._client, self._at_a_time, self._local = (
            store,
            tell,
            client,
            at_a_time,
            local,
        )
        self._queue = distributed.Queue(f"fedmuscle-{secrets.token_hex(8)}", client, _MESSAGES)
        self._jobs: dict[str, _Job] = {}  # by address
        self._seen = time.monotonic()  # when there was a worker

    def compute(self, runs: Mapping[Address, RunSettings]) -> None:
        """Compute and store the runs; raises as :func:`run_all`."""
        line = deque(runs.items())
        try:
            while line or self._jobs:
                self._hand_out(line)
                ended = [
                    address for address, job in self._jobs.items() if job.future.done()
                ]  # after all of its messages
                messages = self._messages()
                for what, address, content in messages:
                    if address in self._jobs:
                        self._take(what, self._jobs[address], content)
                for address in ended:
                    self._finish(self._jobs[address])
                if not messages:
                    self._wait()
        finally:
            for job in self._jobs.values():
                job.held.close()
            with suppress(OSError):  # the scheduler is gone
                self._queue.get(batch=True)  # it would keep them
                self._queue.close()

    def _hand_out(self, line: deque[tuple[Address, RunSettings]]) -> None:
        """Submit as many runs as there is room for; those that another process is computing stay in
        the line.
        """
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
                future = self._submitted(address, run)
                self._jobs[str(address)] = _Job(
                    address, run, entry, StoringListener(entry, self._tell), lock.pop_all(), future
                )

    def _submitted(self, address: Address, run: RunSettings) -> Future:
        return self._client.submit(
            work, self._queue.name, str(address), run.system, run.portable(), pure=False
        )

    def _messages(self) -> Sequence[tuple[str, str, Any]]:
        with _reached():
            return self._queue.get(batch=True)

    def _take(self, what: str, job: _Job, content: Any) -> None:
        """Do what a worker's message asks for."""
        if what == "tick":
            job.listener.tick(Tick(**content | {"metrics": tuple(map(tuple, content["metrics"]))}))
        elif what == "keep":
            job.submitted = job.begun = 0
            job.listener.keep(content)
        elif what == "discard":
            job.listener.discard(content)
        elif what == "last":
            import distributed

            job.refuse_another(job.begun)
            job.begun += 1
            last = job.listener.last()
            with _reached():
                reply = distributed.Queue(content, self._client)
                reply.put(last)
                reply.close()

    def _finish(self, job: _Job) -> None:
        """Store what a worker has computed, or submit the run again if the worker has died.

        Raises:
            ValueError: it computed something else than what this process asked for.
        """
        import distributed

        if job.future.cancelled():
            raise ChildProcessError("the scheduler of the workers is gone")
        try:
            record, address, source = job.future.result()
        except distributed.KilledWorker:
            job.refuse_another(max(job.submitted, job.begun))
            job.submitted += 1
            job.future = self._submitted(job.address, job.run)
            return
        if source != versions.SOURCE:
            raise ValueError(
                f"{job.run.title}: the worker's library is not the one that this process imported;"
                " if a file was edited in the meantime, restart this process (in JupyterLab: the"
                " kernel)"
            )
        if address != str(job.address):
            raise ValueError(
                f"{job.run.title}: the worker's data or checkpoints are not those that lie here"
            )
        job.entry.save(record)
        del self._jobs[address]
        job.held.close()

    def _wait(self) -> None:
        """Wait a moment; raise ChildProcessError if this machine's workers die before they can be
        handed a run.
        """
        time.sleep(_SECONDS_BETWEEN_LOOKS)
        if not self._local or self._client.nthreads():
            self._seen = time.monotonic()
        elif time.monotonic() - self._seen > _SECONDS_WITHOUT_WORKERS:
            raise ChildProcessError(
                "worker processes end as soon as they are started, as happens when memory runs out"
            )


@contextmanager
def _reached() -> Iterator[None]:
    """Raises ChildProcessError where a connection to the scheduler ends inside."""
    try:
        yield
    except OSError as error:
        raise ChildProcessError(f"the scheduler of the workers is gone ({error})") from None


def work(queue: str, address: str, system: str, run: dict[str, Any]) -> tuple[bytes, str, str]:
    """In a worker: compute a run; return the packed record, the run's address as the worker sees
    it, and the worker's source.
    """
    import distributed

    reports = distributed.Queue(queue, distributed.get_client(), _MESSAGES)
    try:
        record = train(named(system).settings(**run), _SendingListener(reports, address))
    finally:
        reports.close()
    return record.pack(), record.provenance["address"], versions.SOURCE


class _SendingListener(Listener):
    """A worker's reports, as messages to the caller."""

    def __init__(self, queue: Queue, address: str) -> None:
        self._queue, self._address = queue, address

    def tick(self, tick: Tick) -> None:
        self._say("tick", asdict(tick))

    def keep(self, checkpoint: bytes) -> None:
        self._say("keep", checkpoint)

    def discard(self, why: str) -> None:
        self._say("discard", why)

    def last(self) -> bytes | None:
        import distributed

        reply = distributed.Queue(client=distributed.get_client())
        self._say("last", reply.name)
        checkpoint = reply.get(_PATIENCE)
        reply.close()
        return checkpoint

    def _say(self, what: str, content: Any) -> None:
        self._queue.put([what, self._address, content], _PATIENCE)
