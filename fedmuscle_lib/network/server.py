"""The server of a federation: gRPC with mutual TLS, by which the rounds ask parties.

A party calls with its last answer and gets the next question, in one unary call that waits for it.
It may call again with the same answer, as often as the network fails.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Condition

import grpc
from filelock import FileLock

from fedmuscle_lib.core.files import read_bytes, write
from fedmuscle_lib.core.torch_state import fixed_state
from fedmuscle_lib.network import certificates
from fedmuscle_lib.network.history import History, listed
from fedmuscle_lib.network.messages import Question, pack
from fedmuscle_lib.network.rounds import Rounds
from fedmuscle_lib.network.terms import ServerFile

SERVICE, METHOD = "fedmuscle.Federation", "Next"
POLL = 5.0  # seconds after which a call ends without a question; the party calls again
OVER = 20.0  # seconds in which parties are told that all rounds are over
NAME = 16  # bytes before a question, by which its answer names it
OPTIONS = [  # of both sides: bytes of a message, a port for one server, a new connection when asked
    ("grpc.max_receive_message_length", 1 << 28),
    ("grpc.so_reuseport", 0),
    ("grpc.use_local_subchannel_pool", 1),
]


class Parties:
    """The parties, as the rounds ask them.

    Args:
        file: the server's.
        tell: takes lines of progress.
    """

    def __init__(self, file: ServerFile, tell: Callable[[str], object]) -> None:
        self._file, self._tell, self._changed = file, tell, Condition()
        self._open: dict[int, bytes] = {}  # questions
        self._asked = ""  # what they are named by
        self._answers: dict[int, bytes] = {}
        self._there = set(file.users)  # for whom it waits: not for one that is gone until it calls
        self._processes: dict[int, str] = {}

    def ask(self, questions: dict[int, bytes], wait: float | None = None) -> dict[int, bytes]:
        """Ask parties, and wait for those who are there; returns the answers that came."""
        end = time.monotonic() + (wait or self._file.wait)
        with self._changed:
            self._open, self._asked, self._answers = questions, secrets.token_hex(NAME // 2), {}
            self._changed.notify_all()
            while late := self._there & (questions.keys() - self._answers.keys()):
                if not self._changed.wait(max(0, end - time.monotonic())):
                    self._there -= late
            self._open = {}
            return self._answers

    def next(self, answer: bytes, context: grpc.ServicerContext) -> bytes:
        """A party's call: its last answer, and with it as metadata the name of the question (none
        from a process that has just begun), the process, and whether it ends. Returns the next
        question behind its name, or nothing yet.
        """
        about = dict(context.invocation_metadata())
        to, process, ends = about["to"], about["process"], about["ends"]
        name = context.auth_context()["x509_common_name"][0].decode()
        refuse = partial(context.abort, grpc.StatusCode.PERMISSION_DENIED)
        if name not in map(str, self._file.users):
            refuse(f"{name!r} may not join; those who may: {listed(self._file.users)}")
        user = int(name)
        with self._changed:
            if not to and self._processes.get(user) != process:
                self._processes[user] = process
                self._tell(f"user {user} joined")
            if self._processes.setdefault(user, process) != process:
                refuse(f"user {user} joined from elsewhere, after this process")
            self._there.add(user)
            if ends:
                self._there.remove(user)
            if user in self._open and to == self._asked:
                self._answers[user] = answer
            self._changed.notify_all()
            self._changed.wait_for(lambda: ends or user in self._open and to != self._asked, POLL)
            if user in self._open and to != self._asked:
                return self._asked.encode() + self._open[user]
            return b""


def _listening(parties: Parties, file: ServerFile) -> tuple[grpc.Server, str]:
    """A server that listens, and its address, which is in the folder's ``address``, too."""
    certificates.pair(file.certificate)
    pem, root = read_bytes(file.certificate), read_bytes(file.root)
    credentials = grpc.ssl_server_credentials([(pem, pem)], root, require_client_auth=True)
    server = grpc.server(ThreadPoolExecutor(4 * len(file.users)), options=OPTIONS)
    handler = {METHOD: grpc.unary_unary_rpc_method_handler(parties.next)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handler),))
    address, kept = file.address, file.folder / "address"
    if address.endswith(":0") and kept.exists():
        address = kept.read_text()
    port = server.add_secure_port(address, credentials)
    server.start()
    address = f"{address.rpartition(':')[0]}:{port}"
    write(kept, address)
    return server, address


def serve(file: ServerFile, tell: Callable[[str], object] = print) -> History:
    """Do the rounds that are left, listening meanwhile; returns what happened, which the file's
    folder keeps.

    Raises:
        DataError: the public set, a certificate or the folder's state can't be read.
        RuntimeError: the address can't be listened at.
        Timeout: of filelock; another process uses the folder.
        TooFew: fewer than two parties are left in a round.
    """
    parties = Parties(file, tell)
    with FileLock(file.folder / "lock", timeout=0), fixed_state(1):
        server, address = _listening(parties, file)
        try:
            terms = file.terms()
            history = History(file.folder, terms)
            begins = f"round {len(history.rounds) + 1} of {terms.rounds}"
            tell(f"at {address}: {begins} waits for {listed(file.users)}")
            Rounds(terms, file.users, parties.ask, history, tell).run()
            parties.ask(dict.fromkeys(file.users, pack(Question(step="over"))), OVER)
            tell("all rounds are over")
            return history
        finally:
            server.stop(1.0).wait()  # seconds that calls have to end
