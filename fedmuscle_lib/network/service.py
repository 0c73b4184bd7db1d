"""The aggregator behind gRPC, and a party's calls of it.

Calls are unary: bytes there, bytes back, over one connection. Each has a deadline of its own and
may be made again when its answer was lost, which a stream's messages can't. A call that waits for
others is answered at the latest after ``POLL`` seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedmuscle_lib.core.errors import DataError, RefusedMessage, line_of
from fedmuscle_lib.core.files import read_bytes
from fedmuscle_lib.data.encodings import Modality
from fedmuscle_lib.network import keys, messages
from fedmuscle_lib.network.aggregator import POLL, Aggregator, LeftOut, NoSession, StillWaiting
from fedmuscle_lib.network.messages import (
    REPRESENTATIONS,
    ROOM,
    SERVICE,
    Challenge,
    H,
    Head,
    Sent,
    Welcome,
    pack,
    unpack,
)
from fedmuscle_lib.network.terms import Address, Limits, Terms

_SESSION = "session"  # metadata of calls
_MOST_ANSWER = 1 << 28  # bytes
_GRACE = 1.0  # seconds that a server gives calls to end
_SPARE = 10.0  # seconds of a call beside those for which it waits for others
# seconds of a connection; then a party opens another, and calls that go on longer than an honest
# one are ended
_AGE = 60.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0  # seconds between attempts
# What is wrong, as gRPC tells it.
_CODES: dict[type[Exception], grpc.StatusCode] = {
    RefusedMessage: grpc.StatusCode.PERMISSION_DENIED,
    NoSession: grpc.StatusCode.UNAUTHENTICATED,
    LeftOut: grpc.StatusCode.FAILED_PRECONDITION,
    StillWaiting: grpc.StatusCode.ABORTED,
}
_ERRORS = {code: error for error, code in _CODES.items()}
_AGAIN = {
    getattr(grpc.StatusCode, name)
    for name in ("UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED", "UNKNOWN", "INTERNAL")
}
_UNTRUSTED = (
    "TSI_PROTOCOL_FAILURE",
    "Verification Check failed",
)  # in gRPC's words on a server's certificate


class Calls:
    """The aggregator's methods, of bytes and a session's secret; each takes the message of its
    name.
    """

    def __init__(self, aggregator: Aggregator) -> None:
        self._aggregator = aggregator

    def hello(self, content: bytes, secret: str) -> bytes:
        return pack(self._aggregator.hello(unpack("somebody", messages.Hello, content)[0].user))

    def join(self, content: bytes, secret: str) -> bytes:
        return pack(self._aggregator.join(unpack("somebody", messages.Join, content)[0]))

    def ready(self, content: bytes, secret: str) -> bytes:
        user = self._aggregator.user_of(secret)
        return pack(
            self._aggregator.ready(user, unpack(f"user {user}", messages.Ready, content)[0].round)
        )

    def exchange(self, content: bytes, secret: str) -> bytes:
        user = self._aggregator.user_of(secret)
        try:
            message, tensors = unpack(f"user {user}", Sent, content, REPRESENTATIONS)
        except RefusedMessage as error:
            self._aggregator.refuse(user, str(error))
            raise
        return self._aggregator.exchange(user, message, tensors[REPRESENTATIONS], content)

    def finished(self, content: bytes, secret: str) -> bytes:
        user = self._aggregator.user_of(secret)
        return pack(
            self._aggregator.finished(user, unpack(f"user {user}", messages.Finished, content)[0])
        )


METHODS = ("hello", "join", "ready", "exchange", "finished")


def _handler(method: Callable[[bytes, str], bytes]) -> grpc.RpcMethodHandler:
    def call(content: bytes, context: grpc.ServicerContext) -> bytes:
        try:
            return method(content, str(dict(context.invocation_metadata()).get(_SESSION, "")))
        except tuple(_CODES) as error:
            code = next(code for kind, code in _CODES.items() if isinstance(error, kind))
            context.abort(
                code, line_of(str(error), 500).encode("ascii", "backslashreplace").decode()
            )
            raise AssertionError("abort raises") from None

    return grpc.unary_unary_rpc_method_handler(call)


@contextmanager
def listening(
    aggregator: Aggregator,
    address: Address,
    certificate: Path | None,
    key: Path | None,
) -> Iterator[Address]:
    """Listen inside; yields the address with its port.

    Args:
        certificate, key: of TLS, in PEM; none for plain text, which only loopback may have.

    Raises:
        OSError: the address can't be listened at.
        DataError: the certificate or the key can't be read.
    """
    calls, parties = Calls(aggregator), len(aggregator.users)
    options = {
        "so_reuseport": 0,
        "max_receive_message_length": aggregator.terms.largest_batch + ROOM,
    }
    options |= {
        "max_connection_age_ms": int(1000 * _AGE),
        "max_connection_age_grace_ms": int(1000 * (POLL + _SPARE)),
    }
    server = grpc.server(
        ThreadPoolExecutor(2 * parties + 8, thread_name_prefix="party"),
        options=[(f"grpc.{name}", value) for name, value in options.items()],
    )
    handlers = {name: _handler(getattr(calls, name)) for name in METHODS}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    try:
        if certificate is None or key is None:
            port = server.add_insecure_port(str(address))
        else:
            pair = (read_bytes(key), read_bytes(certificate))
            port = server.add_secure_port(str(address), grpc.ssl_server_credentials([pair]))
    except RuntimeError as error:
        raise OSError(f"{address}: can't listen there ({line_of(str(error))})") from None
    server.start()
    try:
        yield address.model_copy(update={"port": port})
    finally:
        stopped = server.stop(_GRACE)
        aggregator.end()
        stopped.wait()


class Connection:
    """A party's connection to the aggregator.

    Args:
        address: the server's.
        root: the certificate that the server's is signed by; None for plain text, which only
            loopback may have.
        limits: how long to wait, and until when.
        tell: takes lines of progress.

    Attributes:
        session: the secret of the session; empty outside of one.
    """

    def __init__(
        self, address: Address, root: Path | None, limits: Limits, tell: Callable[[str], object]
    ) -> None:
        self._address, self._limits, self._tell = address, limits, tell
        self.session, self._end = "", time.monotonic() + limits.seconds
        self._trusted = None if root is None else grpc.ssl_channel_credentials(read_bytes(root))
        self._open()

    def _open(self) -> None:
        options = {
            "initial_reconnect_backoff_ms": 50,
            "max_reconnect_backoff_ms": 2000,
            "max_receive_message_length": _MOST_ANSWER,
        }
        options |= {
            "enable_http_proxy": int(not self._address.loopback),
            "use_local_subchannel_pool": 1,
        }
        given = [(f"grpc.{name}", value) for name, value in options.items()]
        if self._trusted is None:
            self._channel = grpc.insecure_channel(str(self._address), given)
        else:
            self._channel = grpc.secure_channel(str(self._address), self._trusted, given)
        self._methods = {name: self._channel.unary_unary(f"/{SERVICE}/{name}") for name in METHODS}

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *raised: object) -> None:
        self._channel.close()

    def join(
        self,
        user: int,
        key: Ed25519PrivateKey,
        agree: Callable[[Terms], tuple[Modality, str]],
    ) -> int | None:
        """Begin a session; returns the round to go on with, or None if all are over.

        Args:
            agree: checks the terms, and returns what the party's model reads of the public set and
                the SHA-256 of it, None if it has none.

        Raises:
            RefusedMessage: the server refuses the party, or ``agree`` the terms.
        """
        self.session = ""
        challenge = self.ask("hello", messages.Hello(user=user), Challenge)
        reads, public = agree(challenge.terms)
        proof, signature = keys.sign(key, challenge.terms.name, user, challenge.nonce)
        join = messages.Join(
            user=user,
            nonce=challenge.nonce,
            key=proof,
            signature=signature,
            reads=reads,
            public=public,
        )
        welcome = self.ask("join", join, Welcome)
        self.session = welcome.session
        return welcome.round

    def ask(self, name: str, head: Head, kind: type[H]) -> H:
        """Make a call whose messages have no tensors."""
        return unpack("the server", kind, self.call(name, pack(head)))[0]

    def call(self, name: str, content: bytes) -> bytes:
        """Make a call, again and again while the server can't be reached.

        Raises:
            TimeoutError: the server is silent for ``limits.wait``, or ``limits.seconds`` are over;
                names the server.
            RefusedMessage, NoSession, LeftOut: what the server answered.
            RuntimeError: it failed.
        """
        silent = time.monotonic()
        pause, told = _FIRST_PAUSE, False
        while True:
            now = time.monotonic()
            if now >= self._end:
                raise TimeoutError(
                    f"limits.seconds: {self._limits.seconds:g} s are over; the server was"
                    f" {self._address}"
                )
            try:
                return self._methods[name](
                    content,
                    timeout=min(POLL + _SPARE, self._end - now + 1),
                    metadata=((_SESSION, self.session),),
                )
            except grpc.RpcError as error:
                code, why = error.code(), line_of(error.details() or "", 500)
            if code is _CODES[StillWaiting]:
                silent, pause = time.monotonic(), _FIRST_PAUSE
                self._tell(why)
                time.sleep(pause)
                continue
            if code in _ERRORS:
                raise _ERRORS[code](why)
            if code not in _AGAIN:
                raise RuntimeError(f"the server at {self._address} failed: {why}")
            if any(words in why for words in _UNTRUSTED):
                raise DataError(
                    f"{self._address}: its certificate is not signed by your root, or for another"
                    f" name ({why})"
                )
            if time.monotonic() - silent > self._limits.wait:
                raise TimeoutError(
                    f"waited {self._limits.wait:g} s for the server at {self._address} ({why})"
                )
            if not told and time.monotonic() - silent > 1:
                self._tell(f"waiting for the server at {self._address} ({why})")
                told = True
            if (
                code is grpc.StatusCode.DEADLINE_EXCEEDED
            ):  # a firewall may have forgotten the connection, which TCP finds after minutes
                self._channel.close()
                self._open()
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
