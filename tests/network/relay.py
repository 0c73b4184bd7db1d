"""A relay of TCP connections on loopback, which can spoil what a network spoils."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Thread


@contextmanager
def relay(to: str, spoil: Callable[[int], bool]) -> Iterator[str]:
    """Relay to a server inside; yields the address.

    Args:
        spoil: is called with the number of bytes so far before each part goes on; it may sleep, and
            returns whether the connection breaks.
    """
    listener, total, opened = socket.create_server(("127.0.0.1", 0)), [0], list[socket.socket]()

    def pass_on(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while part := source.recv(1 << 16):
                total[0] += len(part)
                if spoil(total[0]):
                    break
                target.sendall(part)
        close(source, target)

    def close(*sockets: socket.socket) -> None:
        for each in sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def accept() -> None:
        with suppress(OSError):  # closed
            while True:
                party, _ = listener.accept()
                host, _, port = to.rpartition(":")
                opened.extend((party, server := socket.create_connection((host, int(port)))))
                for pair in ((party, server), (server, party)):
                    Thread(target=pass_on, args=pair, daemon=True).start()

    Thread(target=accept, daemon=True).start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        close(listener, *opened)
