"""A party's process: it calls the server, and answers what it is asked."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from contextlib import suppress

import grpc
from filelock import FileLock

from fedmuscle_lib.core.errors import DataError, RefusedMessage, line_of
from fedmuscle_lib.core.files import read_bytes
from fedmuscle_lib.network import certificates
from fedmuscle_lib.network.messages import Answer, pack
from fedmuscle_lib.network.party import Party
from fedmuscle_lib.network.server import METHOD, NAME, OPTIONS, POLL, SERVICE
from fedmuscle_lib.network.terms import PartyFile

SPARE = 10.0  # seconds of a call beside those for which it waits for a question
REFUSED = {  # what gRPC says, and what that means
    "TSI_PROTOCOL_FAILURE": "your root has not signed its certificate, or it has expired",
    "Verification Check failed": "its certificate is for another name",
    "Socket closed": "its root has not signed your certificate, or it has expired",
}
LAST = 2.0  # seconds of the last one, after which a party ends
PAUSE = 1.0  # seconds between attempts


def join(file: PartyFile, tell: Callable[[str], object] = print) -> None:
    """Take part as the file says; raises as :func:`take_part`, and filelock's Timeout if another
    process uses the party's state.
    """
    with FileLock(file.state / "lock", timeout=0):
        take_part(Party(file, certificates.user_of(file.certificate), tell), tell)


def take_part(party: Party, tell: Callable[[str], object] = print) -> None:
    """Answer the server's questions until all rounds are over.

    Raises:
        RefusedMessage: the server refuses the party, or asks for what the party does not do.
        TimeoutError: the server can't be reached for ``wait`` seconds; names it.
        Diverged: training gives no finite numbers any more.
        DataError: data, a certificate or a checkpoint can't be read.
    """
    connection, answer, to = _Connection(party.file, tell), b"", ""
    try:
        while not party.over:
            question = connection.next(answer, to)
            to = question[:NAME].decode()
            answer = party.answer(question[NAME:])
    except Exception as error:
        answer = pack(Answer(leaves=line_of(str(error))))
        raise
    finally:  # the server need not wait for this party
        with suppress(grpc.RpcError):
            connection.call(answer, to, LAST, "ends")


class _Connection:
    def __init__(self, file: PartyFile, tell: Callable[[str], object]) -> None:
        self._file, self._tell, self._process = file, tell, secrets.token_hex(8)
        pem, root = read_bytes(file.certificate), read_bytes(file.root)
        self._credentials = grpc.ssl_channel_credentials(root, pem, pem)
        self._open()

    def _open(self) -> None:
        here = self._file.server.startswith(("127.", "localhost:"))
        options = [*OPTIONS, ("grpc.enable_http_proxy", int(not here))]
        channel = grpc.secure_channel(self._file.server, self._credentials, options)
        self._method = channel.unary_unary(f"/{SERVICE}/{METHOD}")

    def call(self, answer: bytes, to: str, seconds: float, ends: str = "") -> bytes:
        """Give an answer to the question of this name; the last call of a process says that it
        ends. Returns the next question, or nothing yet.

        Raises:
            grpc.RpcError: it failed.
        """
        about = (("to", to), ("process", self._process), ("ends", ends))
        return self._method(answer, timeout=seconds, metadata=about)

    def next(self, answer: bytes, to: str) -> bytes:
        """The next question, however often the network fails; raises as :func:`take_part`."""
        at, reached, told = f"the server at {self._file.server}", time.monotonic(), ""
        while True:
            try:
                if question := self.call(answer, to, POLL + SPARE):
                    return question
                reached, why = time.monotonic(), "waiting for the other parties"
            except grpc.RpcError as error:
                why = f"waiting for {at} ({line_of(error.details() or '', 500)})"
                if error.code() is grpc.StatusCode.PERMISSION_DENIED:
                    raise RefusedMessage(error.details()) from None
                refused = [what for sign, what in REFUSED.items() if sign in why]
                silent = time.monotonic() - reached
                if refused and silent > POLL + SPARE:  # else the server may just have been killed
                    raise DataError(f"{at}: {refused[0]} ({why})") from None
                if silent > self._file.wait:
                    raise TimeoutError(f"{why} for {self._file.wait:g} s") from None
                # a firewall may have forgotten the connection, which TCP finds after minutes
                self._open()
                time.sleep(PAUSE)
            if why != told:
                self._tell(why)
            told = why
