"""Web servers on the loopback interface: one that can be told to break off, to change a file, or to
know no ranges; and one that says whatever it is told to, be it HTTP or not.
"""

from __future__ import annotations

import socketserver
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Loopback:
    """Attributes:
    files: content by path, without the leading slash.
    etags: ETag by path; none is sent for others.
    ranges: whether Range is honoured.
    breaks: after how many bytes to break off, one entry a GET, whole answers after that.
    statuses: status to answer with instead, one entry a GET.
    heads: status to answer every HEAD with instead; 0 for none.
    log: path, Range header and number of bytes sent, of every GET.
    """

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.etags: dict[str, str] = {}
        self.ranges = True
        self.breaks: deque[int] = deque()
        self.statuses: deque[int] = deque()
        self.heads = 0
        self.log: list[tuple[str, str | None, int]] = []
        self.url = ""


@contextmanager
def serving() -> Iterator[Loopback]:
    state = Loopback()

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self._answer(body=False)

        def do_GET(self) -> None:
            self._answer(body=True)

        def _answer(self, body: bool) -> None:
            path, asked = self.path.lstrip("/"), self.headers.get("Range")
            content = state.files.get(path)
            status = (
                state.statuses.popleft()
                if body and state.statuses
                else 200
                if content is not None
                else 404
            )
            status = state.heads if state.heads and not body else status
            if status != 200:
                state.log.append((path, asked, 0))
                self.send_error(status)
                return
            start, etag = 0, state.etags.get(path)
            if asked and state.ranges and self.headers.get("If-Range") in {None, etag}:
                start, status = int(asked.removeprefix("bytes=").rstrip("-")), 206
                if start >= len(content):
                    state.log.append((path, asked, 0))
                    self.send_response(416)
                    self.send_header("Content-Range", f"bytes */{len(content)}")
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
            part = content[start:]
            if body:
                part = part[: state.breaks.popleft()] if state.breaks else part
                state.log.append((path, asked, len(part)))  # before the client has it, and looks
            self.send_response(status)
            self.send_header("Content-Length", str(len(content) - start))
            if status == 206:
                self.send_header(
                    "Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}"
                )
            if etag:
                self.send_header("ETag", etag)
            self.end_headers()
            if body:
                self.wfile.write(part)
            self.close_connection = True

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    with _listening(server) as state.url:
        yield state


@contextmanager
def answering(answer: Callable[[int, bytes], bytes]) -> Iterator[tuple[str, list[bytes]]]:
    """Serve bytes as they are, and break off behind them.

    Args:
        answer: gives what the server sends, from the number of the request, from 0, and its header.

    Yields:
        The server's address, and the headers of the requests so far.
    """
    asked: list[bytes] = []

    class Handler(socketserver.StreamRequestHandler):
        timeout = 5

        def handle(self) -> None:
            asked.append(b"".join(iter(lambda: self.rfile.readline(1 << 16), b"\r\n")))
            with suppress(OSError):  # the client has had enough
                self.wfile.write(answer(len(asked) - 1, asked[-1]))

    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
    with _listening(server) as url:
        yield url, asked


@contextmanager
def _listening(server: socketserver.ThreadingTCPServer) -> Iterator[str]:
    server.daemon_threads = True
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
    )
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
