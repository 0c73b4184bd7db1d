"""A relay of TCP connections on loopback: it counts bytes and can spoil what a network spoils.

Tests and ``bench`` put it in between.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from fedmuscle_lib.network.terms import Address

_PART = 1 << 16  # bytes at once


class Relay:
    """A port of loopback, behind which parties reach the server.

    Args:
        to: the server's address.
        spoil: is called with the number of bytes so far before each part goes on; it may sleep, and
            returns whether the connection breaks.

    Attributes:
        address: where it listens. up, down: bytes of TCP's payload from parties to the server and
        back, with all of TLS and HTTP/2.
    """

    def __init__(self, to: Address, spoil: Callable[[int], bool] = lambda _: False) -> None:
        self._to, self.spoil, self.up, self.down = to, spoil, 0, 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = Address(host="127.0.0.1", port=self._listener.getsockname()[1])
        self._lock, self._open = threading.Lock(), set[socket.socket]()

    @contextmanager
    def running(self) -> Iterator[Relay]:
        """Relay inside."""
        threading.Thread(target=self._accept, daemon=True).start()
        try:
            yield self
        finally:
            self._listener.close()
            self._close(*list(self._open))

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                party, _ = self._listener.accept()
                try:
                    server = socket.create_connection((self._to.host, self._to.port))
                except OSError:  # it is not there yet, or no more
                    self._close(party)
                    continue
                self._open |= {party, server}
                for pair in ((party, server), (server, party)):
                    pair[0].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    threading.Thread(
                        target=self._pass_on, args=(*pair, pair[0] is party), daemon=True
                    ).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, up: bool) -> None:
        with suppress(OSError):
            while part := source.recv(_PART):
                with self._lock:
                    self.up, self.down = self.up + up * len(part), self.down + (not up) * len(part)
                    total = self.up + self.down
                if self.spoil(total):
                    break
                target.sendall(part)
        self._close(source, target)

    def _close(self, *sockets: socket.socket) -> None:
        for each in sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
            self._open.discard(each)
