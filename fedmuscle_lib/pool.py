"""``run_all``: several runs at a time, each in a process of its own, as many as the cores bear.

A worker is a fresh interpreter that imports the library and nothing of the caller's program, so that scripts need no guard and
notebooks can use it. It is sent settings and answers with lines of progress and an outcome, in JSON, over a socket that closes when
either side dies: then the other one knows.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import torch

from fedmuscle_lib import experiment, store
from fedmuscle_lib.experiment import History
from fedmuscle_lib.pickles import DataError
from fedmuscle_lib.settings import Settings

ROOT = Path(__file__).parents[1]
Progress = Callable[[str], None]
# what a worker's error is raised as: the first that it is one of
_KINDS = {kind.__name__: kind for kind in (DataError, FileNotFoundError, OSError, ValueError, RuntimeError)}

_log = logging.getLogger("fedmuscle")


def run_all(settings: Iterable[Settings], progress: Progress | None = None) -> list[History]:
    """Compute or fetch several runs; their histories come in the given order.

    Each run takes its ``settings.threads`` of the cores that this process may use, which are ``torch.get_num_threads()``: OMP_NUM_THREADS
    where that is set, as ``reproduce`` does for each notebook. If that allows several at a time, processes compute them that know the
    library and ``experiment.RUNS``, but nothing else that the caller has changed or registered; if it does not, and on anything but a
    CPU, this process does.

    A run that is computed elsewhere is put off while others can be done. The first error, or an interrupt, ends the call: what is
    finished is in the store, and what was begun continues another time.

    Args:
        settings: what to run.
        progress: as for ``run``; called in this thread.

    Raises:
        DataError, OSError, ValueError: as ``run``.
        ChildProcessError: a process that computed was killed, as when memory runs out; the message names the run and the signal.
        RuntimeError: any other error of a run; where processes computed, the message names its kind.
    """
    wanted = list(settings)
    tell = progress or _log.info
    missing = _missing(wanted)
    at_a_time = _affordable(missing)
    if at_a_time > 1:
        _compute_in_workers(missing, at_a_time, tell)
    else:
        _compute_here(missing, tell)
    return [experiment.run(one, tell) for one in wanted]


def _missing(wanted: Iterable[Settings]) -> list[Settings]:
    """What has to be computed, each run once: local training is the same run whatever the public set."""
    runs: dict[store.Entry, Settings] = {}
    for one in wanted:
        if not (entry := experiment.entry_of(one)).done:
            runs.setdefault(entry, one)
    return list(runs.values())


def _affordable(runs: Sequence[Settings]) -> int:
    """How many of the runs to compute at a time."""
    if any(run.device != "cpu" for run in runs):
        return 1
    threads = max((run.threads for run in runs), default=1)
    return min(len(runs), max(1, torch.get_num_threads() // threads))


# --- the two ways ------------------------------------------------------------------------------------------------------------
# A run that turns out to be computed elsewhere goes to the end of the line, and is waited for when its turn comes again.


def _compute_here(runs: Iterable[Settings], progress: Progress) -> None:
    line = deque((run, False) for run in runs)
    while line:
        run, patient = line.popleft()
        try:
            experiment.run(run, progress, wait=patient)
        except store.Busy:
            line.append((run, True))


def _compute_in_workers(runs: Iterable[Settings], count: int, progress: Progress) -> None:
    line = deque((run, False) for run in runs)
    workers: list[_Worker] = []
    try:
        for _ in range(count):
            workers.append(worker := _Worker())
            worker.begin(*line.popleft())
        while computing := [worker for worker in workers if worker.run]:
            for worker in wait(computing):
                what, *content = worker.hear()
                if what == "progress":
                    progress(*content)
                    continue
                if what == "error":
                    raise _rebuilt(*content)
                if what == "busy":
                    line.append((worker.run, True))
                worker.run = None
                if line:
                    worker.begin(*line.popleft())
    finally:
        for worker in workers:  # at once: the store is safe against a kill
            worker.process.kill()
        for worker in workers:
            worker.process.wait()


class _Worker:
    """A process that computes one run at a time, seen from the caller's.

    Attributes:
        run: what it is computing, if anything.
    """

    def __init__(self) -> None:
        self.run: Settings | None = None
        self._connection, theirs = Pipe()
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))  # this library, not another installed one
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", f"from fedmuscle_lib.pool import work; work({theirs.fileno()})"],
                env=os.environ | {"PYTHONPATH": path, "FEDMUSCLE_RUNS": str(experiment.RUNS)},
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C reaches the caller alone, which then ends its workers
            )

    def fileno(self) -> int:
        """What ``multiprocessing.connection.wait`` looks at."""
        return self._connection.fileno()

    def begin(self, run: Settings, patient: bool) -> None:
        self.run = run
        with suppress(ConnectionError):  # it has died, which the next `hear` tells
            _send(self._connection, run.model_dump(mode="json"), patient)

    def hear(self) -> list[Any]:
        """The next message.

        Raises:
            ChildProcessError: there will be none.
        """
        try:
            return _receive(self._connection)
        except (EOFError, ConnectionError):
            code = self.process.wait()
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        why = ", as happens when memory runs out" if code == -signal.SIGKILL else ""
        raise ChildProcessError(f"{self.run.algorithm} {self.run.public} seed {self.run.seed}: its process {how}{why}")


# --- the worker's process ----------------------------------------------------------------------------------------------------


def work(handle: int) -> None:
    """Compute the runs that arrive at the socket ``handle``, one after the other, until its other side is closed."""
    connection = Connection(handle)
    arrived: SimpleQueue[list[Any]] = SimpleQueue()
    threading.Thread(target=_listen, args=(connection, arrived), daemon=True).start()
    say = partial(_send, connection)
    while True:
        given, patient = arrived.get()
        with suppress(ConnectionError):  # the caller is gone, and this process about to follow
            say(*_outcome(given, patient, partial(say, "progress")))


def _listen(connection: Connection, arrived: SimpleQueue[list[Any]]) -> None:
    """Pass on what arrives, and leave nothing behind when the caller's process is gone, even in the middle of a round."""
    while True:
        try:
            arrived.put(_receive(connection))
        except (EOFError, ConnectionError):
            os._exit(1)


def _outcome(given: dict[str, Any], patient: bool, progress: Progress) -> list[Any]:
    try:
        experiment.run(Settings(**given), progress, wait=patient)
    except store.Busy:
        return ["busy"]
    except Exception as error:
        return ["error", *_described(error)]
    return ["done"]


# --- what they say to each other ---------------------------------------------------------------------------------------------


def _send(connection: Connection, *message: Any) -> None:
    connection.send_bytes(json.dumps(message).encode())


def _receive(connection: Connection) -> list[Any]:
    return json.loads(connection.recv_bytes())


def _described(error: Exception) -> tuple[str, list[Any], str]:
    """The name of one of ``_KINDS``, its arguments, and where the error came from."""
    origin = "".join(traceback.format_exception(error))
    name = next((name for name, kind in _KINDS.items() if isinstance(error, kind)), None)
    if name is None:
        return "RuntimeError", [f"{type(error).__name__}: {error}"], origin
    if isinstance(error, OSError) and error.strerror:  # the command line tells a full disk by its parts
        return name, [error.errno, error.strerror, error.filename and str(error.filename)], origin
    return name, [str(error)], origin


def _rebuilt(name: str, arguments: Sequence[Any], origin: str) -> Exception:
    error = _KINDS[name](*arguments)
    error.add_note(f"In the process that computed it:\n{origin}")
    return error
