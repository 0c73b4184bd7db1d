"""Worker processes, and how they speak to the process that asked: on this machine through loky, elsewhere through Dask.

A crew takes runs by their address and gives messages back: ("tick", address, Tick), ("keep", address, checkpoint), ("discard", address,
why) and at last ("done", address, future). What crosses between processes is JSON and bytes.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from multiprocessing.connection import Client, Connection, Listener
from queue import Empty, Queue
from typing import Any

from fedmuscle_lib.core import versions
from fedmuscle_lib.runs.loop import Post, train
from fedmuscle_lib.runs.progress import Tick
from fedmuscle_lib.runs.system import named

Message = tuple[str, str, Any]
_END = "end"  # of what is to be heard


class WorkerLost(RuntimeError):
    """A worker process has died."""


@dataclass(frozen=True)
class Result:
    """What a worker gives back: the packed record, the run's address as the worker sees it, and the worker's source."""

    record: bytes
    address: str
    source: str


class Crew(ABC):
    """Workers that compute runs."""

    executor: Executor

    def __init__(self) -> None:
        self._heard: Queue[Message] = Queue()

    def submit(self, address: str, system: str, run: dict[str, Any], checkpoint: bytes | None) -> None:
        """Have the system's ``run`` computed, from the checkpoint on if there is one."""
        future = self.executor.submit(work, system, run, self.post(address, checkpoint))
        future.add_done_callback(lambda done: self._heard.put(("done", address, done)))

    def hear(self, seconds: float) -> Message | None:
        """The next message, or None if there is none for so long."""
        try:
            return self._heard.get(timeout=seconds)
        except Empty:
            return None

    @abstractmethod
    def post(self, address: str, checkpoint: bytes | None) -> Post:
        """What a worker speaks through, as a value that can be sent to it."""

    @abstractmethod
    def close(self) -> None:
        """End the workers' work at once."""


@contextmanager
def crew(count: int, scheduler: str | None) -> Iterator[Crew]:
    """``count`` processes of this machine, or the scheduler's workers; at the end nothing of theirs goes on."""
    workers: Crew = _Remote(scheduler) if scheduler else _Local(count)
    try:
        yield workers
    finally:
        workers.close()


def work(system: str, run: dict[str, Any], post: Post) -> Result:
    """In a worker: compute a run."""
    record = train(named(system).settings(**run), post)
    return Result(record.pack(), record.provenance["address"], versions.SOURCE)


# --- on this machine -----------------------------------------------------------------------------------------------------------


class _Local(Crew):
    """Processes of loky's, which know the library and nothing of the caller's program, so that scripts and notebooks need no guard."""

    def __init__(self, count: int) -> None:
        from loky import ProcessPoolExecutor  # half a second that a run in this process need not wait for

        super().__init__()
        self._key = secrets.token_bytes(16)
        self._listener = Listener(authkey=self._key)
        threading.Thread(target=self._accept, daemon=True).start()
        self.executor: ProcessPoolExecutor = ProcessPoolExecutor(count, initializer=_end_with_caller, initargs=(os.getpid(),))

    def post(self, address: str, checkpoint: bytes | None) -> Post:
        return _SocketPost(self._listener.address, self._key, address, checkpoint)

    def close(self) -> None:
        self.executor.shutdown(wait=True, kill_workers=True)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection = self._listener.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._listen, args=(connection,), daemon=True).start()

    def _listen(self, connection: Connection) -> None:
        with suppress(EOFError, OSError), connection:
            while True:
                what, address, content = json.loads(connection.recv_bytes())
                if what == "keep":
                    content = connection.recv_bytes()
                self._heard.put(_message(what, address, content))
                connection.send_bytes(b"heard")


@dataclass
class _SocketPost:
    """Each message is acknowledged, so that none comes after the result."""

    where: Any
    key: bytes
    address: str
    checkpoint: bytes | None

    def tick(self, tick: Tick) -> None:
        self._say("tick", asdict(tick))

    def keep(self, checkpoint: bytes) -> None:
        self._say("keep", None, checkpoint)

    def last(self) -> bytes | None:
        return self.checkpoint

    def discard(self, why: str) -> None:
        self._say("discard", why)

    def _say(self, what: str, content: Any, attached: bytes | None = None) -> None:
        try:
            connection = _connected(self.where, self.key)
            connection.send_bytes(json.dumps([what, self.address, content]).encode())
            if attached is not None:
                connection.send_bytes(attached)
            connection.recv_bytes()
        except (EOFError, OSError):
            os._exit(1)  # nobody is there to hear of it


_connections: dict[Any, Connection] = {}


def _connected(where: Any, key: bytes) -> Connection:
    if where not in _connections:
        _connections[where] = Client(where, authkey=key)
    return _connections[where]


def _end_with_caller(caller: int) -> None:
    """In a new worker: Ctrl-C is for the caller, which ends its workers; a caller that is gone takes them along, even in a round."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_watch, args=(caller,), daemon=True).start()


def _watch(caller: int) -> None:
    while os.getppid() == caller:
        time.sleep(0.5)
    os._exit(1)


def _message(what: str, address: str, content: Any) -> Message:
    if what == "tick":
        content = Tick(**content | {"metrics": tuple(map(tuple, content["metrics"]))})
    return what, address, content


# --- on other machines ---------------------------------------------------------------------------------------------------------


class _Remote(Crew):
    """Workers of a Dask scheduler. A run whose worker dies is begun again by the scheduler, from the last checkpoint, which it keeps."""

    def __init__(self, scheduler: str) -> None:
        try:
            import distributed
        except ImportError:
            raise ValueError("a scheduler needs Dask: pip install 'fedmuscle-notebooks[cluster]'") from None
        super().__init__()
        try:
            self._client = distributed.Client(scheduler, timeout="10s", set_as_default=False)
        except (OSError, ValueError) as error:
            raise ValueError(f"scheduler: {scheduler} can't be reached ({error})") from None
        self._name = f"fedmuscle-{secrets.token_hex(8)}"
        self._queue = distributed.Queue(self._name, client=self._client)
        self._killed = distributed.KilledWorker
        self.executor = self._client.get_executor(pure=False)
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def post(self, address: str, checkpoint: bytes | None) -> Post:
        if checkpoint is not None:
            self._client.set_metadata([self._name, address], checkpoint)
        return _DaskPost(self._name, address)

    def hear(self, seconds: float) -> Message | None:
        message = super().hear(seconds)
        if message and message[0] == "done" and isinstance(message[2].exception(), self._killed):
            raise ChildProcessError(f"{message[1]}: {message[2].exception()}")
        return message

    def close(self) -> None:
        self.executor.shutdown(wait=False)
        with suppress(Exception):  # a scheduler that is gone has forgotten the queue
            self._queue.put([_END, "", None])
            self._thread.join(5)
            self._queue.close()
            self._client.set_metadata([self._name], {})  # the scheduler keeps checkpoints for ever otherwise
        self._client.close(timeout=5)

    def _listen(self) -> None:
        with suppress(Exception):  # the scheduler is gone, and the futures say so
            while (message := self._queue.get())[0] != _END:
                what, address, content = message
                if what == "keep":
                    content = self._client.get_metadata([self._name, address])
                self._heard.put(_message(what, address, content))


@dataclass
class _DaskPost:
    name: str
    address: str

    def tick(self, tick: Tick) -> None:
        self._say("tick", asdict(tick))

    def keep(self, checkpoint: bytes) -> None:
        self._client.set_metadata([self.name, self.address], checkpoint)
        self._say("keep", None)

    def last(self) -> bytes | None:
        return self._client.get_metadata([self.name, self.address], None)

    def discard(self, why: str) -> None:
        self._say("discard", why)

    @property
    def _client(self) -> Any:
        import distributed

        return distributed.get_client()

    def _say(self, what: str, content: Any) -> None:
        import distributed

        distributed.Queue(self.name, client=self._client).put([what, self.address, content])
