"""A web server on the loopback interface that can be told to break off, to change a file, or to know
no ranges.
"""

from __future__ import annotations

import socketserver
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Loopback:
    """Attributes:
    files: content by path, without the leading slash.
    etags: ETag by path; none is sent for others.
    ranges: whether Range is honoured.
    breaks: after how many bytes to break off, one entry a GET, whole answers after that.
    log: path, Range header and number of bytes sent, of every GET.
    """

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.etags: dict[str, str] = {}
        self.ranges = True
        self.breaks: deque[int] = deque()
        self.log: list[tuple[str, str | None, int]] = []
        self.url = ""


@contextmanager
def serving() -> Iterator[Loopback]:
    state = Loopback()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path, asked = self.path.lstrip("/"), self.headers.get("Range")
            content = state.files.get(path)
            status = 200 if content is not None else 404
            if content is None:
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
            self.wfile.write(part)
            self.close_connection = True

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    with _listening(server) as state.url:
        yield state


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
