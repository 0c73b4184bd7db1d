"""Resumable downloads, and where archives come from: the official host, a base URL, or a folder.

A note beside each download (``<name>.note.json``) holds its address, size and ETag. A partial download resumes only if the server
still has the same file, and a complete file is not fetched again. The standard library suffices, since no login is needed.

Every download ends, whatever the server does: bytes must come at a pace, attempts must get further than the last ones, and a header or a
file has a largest size.
"""

from __future__ import annotations

import http.client
import io
import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.message import Message
from hashlib import file_digest
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

from tqdm import tqdm

from data_prep.io.entry import Archive, SourceError
from fedmuscle_lib.core.errors import line_of
from fedmuscle_lib.core.files import named

TIMEOUT = 30  # seconds without a byte
ATTEMPTS = 5  # in a row that get no further
PAUSE = 1.0  # seconds before the second attempt, doubled each time
WINDOW, LEAST = 60.0, 1 << 16  # in so many seconds, and in an attempt that gets further, at least so many bytes
MOST = 1 << 37  # bytes of a file; COCO's largest archive has 2e10
_MOST_HEADER = 1 << 20  # bytes of an answer before its content
_MOST_SUMS = 1 << 24
_CHUNK = 1 << 18
_AGAIN = {408, 416, 425, 429, 500, 502, 503, 504}
_ABSENT = {403, 404, 410}
_NO_HEAD = {405, 501}
_REDIRECTS = {301, 302, 303, 307, 308}
_HEADERS = {"User-Agent": "fedmuscle-notebooks", "Accept-Encoding": "identity"}
SUMS = "SHA256SUMS"
_SUM = re.compile(r"([0-9a-fA-F]{64})\s+\*?(?:\./+)*(\S.*)")
T = TypeVar("T")


def download(url: str, path: Path, *, quiet: bool = False) -> Path:
    """Fetch ``url`` to ``path``, which appears only when it is complete; ``<path>.part`` holds a partial download.

    A file without a note was put there by the user and is used as it is.

    Raises:
        SourceError: the address does not exist, or attempts get no further; the next call resumes what is kept.
        OSError: the file can't be written; the message names it.
    """
    note = _Note(path)
    if path.exists() and note.read().get("url", url) == url:
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)  # it is another address's, and the note is about to say otherwise
    part = path.with_name(path.name + ".part")
    failures, furthest, whole = 0, _size(part), False
    reasons: list[str] = []
    while True:
        try:
            _attempt(url, part, note, quiet, whole)
            break
        except _BrokeOff as error:
            reason, whole = str(error), error.whole
        if _size(part) >= furthest + LEAST:  # bytes that are fetched again after a part was discarded bring nobody further
            failures, furthest, reasons = 0, _size(part), []
        failures += 1
        reasons += [reason] if reason not in reasons else []
        if failures == ATTEMPTS:
            kept = f"{_size(part):,} bytes are kept in {part}; " if _size(part) else "nothing is kept; "
            raise SourceError(f"{url}: could not be downloaded ({'; '.join(reasons)}); {kept}run the same command again to go on")
        time.sleep(PAUSE * 2 ** (failures - 1))
    part.replace(path)
    return path


class _BrokeOff(Exception):
    """An attempt failed, and another may not; ``whole`` says that it should not ask for a range."""

    def __init__(self, reason: str, whole: bool = False) -> None:
        super().__init__(line_of(reason))
        self.whole = whole


class _Note:
    """What is known of a download: its address, and the headers that identify the server's file."""

    def __init__(self, path: Path) -> None:
        self.path = path.with_name(path.name + ".note.json")

    def read(self) -> dict[str, Any]:
        """What was written; empty if that is not what lies there."""
        try:
            content = json.loads(self.path.read_text())
        except (OSError, ValueError, RecursionError):
            return {}
        texts = isinstance(content, dict) and all(isinstance(content.get(name), str | None) for name in ("url", "etag", "modified"))
        return content if texts else {}

    def write(self, content: dict[str, Any]) -> None:
        with named(self.path):
            self.path.write_text(json.dumps(content))


def _attempt(url: str, part: Path, note: _Note, quiet: bool, whole: bool) -> None:
    """Receive what is missing of a file, or all of it.

    Raises:
        _BrokeOff: another attempt may succeed.
        SourceError: no attempt will.
    """
    known = note.read()
    have = 0 if whole or known.get("url") != url else _size(part)
    headers = dict(_HEADERS)
    if have:
        headers["Range"] = f"bytes={have}-"
        # a weak ETag may not be asked for by If-Range; the answer's headers are compared in any case
        if known.get("etag") and not known["etag"].startswith("W/"):
            headers["If-Range"] = known["etag"]
    try:
        with _opened(urllib.request.Request(url, headers=headers)) as response:
            fresh: dict[str, Any] = {"url": url, "etag": _said(response, "ETag"), "modified": _said(response, "Last-Modified")}
            fresh["total"] = total = _total(response.headers)
            if total is not None and total > MOST:
                raise SourceError(f"{url}: the server says that it has {total:,} bytes; at most {MOST:,} are fetched")
            if response.status == 206 and have:
                if fresh != known:
                    part.unlink()
                    raise _BrokeOff("the server's file is no longer the one of the part, which is discarded")
                if not (response.headers.get("Content-Range") or "").startswith(f"bytes {have}-"):
                    raise _BrokeOff(f"asked for bytes {have}-, the server sends {response.headers.get('Content-Range')}", whole=True)
            elif response.status == 200:
                have = 0
                part.unlink(missing_ok=True)
                note.write(fresh)
            else:
                raise _BrokeOff(f"the server answers {response.status} {response.reason}")
            _receive(response, part, have, total, quiet)
    except urllib.error.HTTPError as error:
        if error.code not in _AGAIN:
            raise SourceError(f"{url}: the server answers {_answer(error)}") from None
        if error.code == 416 and have:
            if _total(error.headers) == have == known.get("total"):
                return  # the part is whole
            part.unlink()
            raise _BrokeOff("the server's file is no longer the one of the part, which is discarded (416)") from None
        raise _BrokeOff(_answer(error)) from None


def _receive(response: http.client.HTTPResponse, part: Path, have: int, total: int | None, quiet: bool) -> None:
    name = part.name.removesuffix(".part")
    bar = tqdm(total=total, initial=have, unit="B", unit_scale=True, desc=name, leave=False, disable=True if quiet else None)
    with named(part), part.open("ab" if have else "wb") as out, bar:  # errors of reading are no OSErrors
        while block := _read(response, _CHUNK):
            have += len(block)
            if have > (MOST if total is None else total):
                raise _BrokeOff(f"the server sends more than {MOST if total is None else total:,} bytes", whole=True)
            out.write(block)
            bar.update(len(block))
    if total is not None and have != total:
        raise _BrokeOff(f"broke off at {have:,} of {total:,} bytes")


# --- the connection ----------------------------------------------------------------------------------------------------------


class _Slow(TimeoutError):
    """Bytes come too slowly, or too many before the content."""


class _Paced(io.RawIOBase):
    """A connection's bytes, as long as they come at a pace: a timeout alone would let a server send one now and then, for ever."""

    def __init__(self, raw: io.RawIOBase) -> None:
        self._raw = raw
        self._start, self._got = time.monotonic(), 0
        self.header: int | None = 0  # bytes of the header so far; None once it is read

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        count = self._raw.readinto(buffer)
        self._got += count or 0
        if self.header is not None:
            self.header += count or 0
            if self.header > _MOST_HEADER + len(buffer):
                raise _Slow("the server's answer has no end of its header")
        if (seconds := time.monotonic() - self._start) > WINDOW:
            if self._got < LEAST:
                raise _Slow(f"the server sent {self._got:,} bytes in {seconds:.0f} s")
            self._start, self._got = time.monotonic(), 0
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Response(http.client.HTTPResponse):
    def __init__(self, sock: Any, *arguments: Any, **options: Any) -> None:
        super().__init__(sock, *arguments, **options)
        self._paced = _Paced(self.fp.detach())
        self.fp = io.BufferedReader(self._paced)

    def begin(self) -> None:
        super().begin()
        self._paced.header = None


class _OverPaced:
    """A handler of urllib's whose connections are read through ``_Paced``."""

    def do_open(self, kind: type, request: urllib.request.Request, **options: Any) -> http.client.HTTPResponse:
        return super().do_open(type(kind.__name__, (kind,), {"response_class": _Response}), request, **options)  # type: ignore[misc]


class _Http(_OverPaced, urllib.request.HTTPHandler):  # type: ignore[misc]
    pass


class _Https(_OverPaced, urllib.request.HTTPSHandler):  # type: ignore[misc]
    pass


def _opener() -> urllib.request.OpenerDirector:
    """Opens http and https, and no other address that a server may redirect to."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler,
        urllib.request.UnknownHandler,
        _Http,
        _Https,
        urllib.request.HTTPDefaultErrorHandler,
        urllib.request.HTTPRedirectHandler,
        urllib.request.HTTPErrorProcessor,
    ):
        opener.add_handler(handler())
    return opener


@contextmanager
def _opened(request: urllib.request.Request) -> Iterator[http.client.HTTPResponse]:
    """The server's answer.

    Raises:
        HTTPError: its status is none of success.
        _BrokeOff: the server can't be reached, or its answer is none of HTTP's.
        SourceError: an address that is neither http nor https.
    """
    if urlsplit(request.full_url).scheme not in {"http", "https"}:
        raise SourceError(f"{request.full_url}: neither http nor https")
    with _network():
        response = _opener().open(request, timeout=TIMEOUT)
    with response:
        yield response


@contextmanager
def _network() -> Iterator[None]:
    """Turn what the connection, or what came through it, can raise into ``_BrokeOff``."""
    try:
        yield
    except urllib.error.HTTPError:
        raise
    except (OSError, http.client.HTTPException, ValueError) as error:  # the last of addresses and headers that are none
        raise _BrokeOff(str(getattr(error, "reason", "") or error) or type(error).__name__) from None


def _read(response: http.client.HTTPResponse, most: int) -> bytes:
    with _network():
        return response.read(most)


def _answer(error: urllib.error.HTTPError) -> str:
    """What a server answered, on a line."""
    if error.code in _REDIRECTS:
        return f"{error.code}, a redirection in a circle, to too many places, or to none that is http or https"
    return line_of(f"{error.code} {error.reason}")


def _said(response: http.client.HTTPResponse, name: str) -> str | None:
    """A header that can be sent back."""
    value = response.headers.get(name)
    return value if value is not None and value.isascii() and value.isprintable() else None


def _total(headers: Message) -> int | None:
    """Return the size of the whole file: the number behind the slash of Content-Range, or Content-Length."""
    of = (headers.get("Content-Range") or "").rpartition("/")[2] or headers.get("Content-Length") or ""
    return int(of) if of.isascii() and of.isdigit() and len(of) < 19 else None


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def head(url: str) -> int | None:
    """Return the size in bytes that the server states for a file: -1 if it states none, None if the file does not exist.

    Raises:
        SourceError: the server can't be reached.
    """

    def size(response: http.client.HTTPResponse) -> int:
        total = _total(response.headers)
        return -1 if total is None else total

    return _ask(url, "HEAD", size)


def _ask(url: str, method: str, answer: Callable[[http.client.HTTPResponse], T]) -> T | None:
    """Return ``answer`` of the server's response, or None if the file does not exist. Fall back from HEAD to GET.

    Raises:
        SourceError: the server can't be reached.
    """
    try:
        with _opened(urllib.request.Request(url, method=method, headers=_HEADERS)) as response:
            return answer(response)
    except urllib.error.HTTPError as error:
        if error.code in _ABSENT:
            return None
        if method == "HEAD" and error.code in _NO_HEAD:
            return _ask(url, "GET", answer)
        raise SourceError(f"{url}: the server answers {_answer(error)}") from None
    except _BrokeOff as error:
        raise SourceError(f"{url}: {error}") from None


@dataclass(frozen=True)
class Source:
    """Where archives come from: a folder, a base URL, or the official host.

    Attributes:
        store: the folder for downloads.
        base_url: fetch every archive from ``base_url/<name>``; None for the official addresses.
        folder: read the archives from here, and download nothing.
    """

    store: Path
    base_url: str | None = None
    folder: Path | None = None

    @classmethod
    def of(cls, store: Path, base_url: str | None, folder: Path | None) -> Source:
        """Build a source from the command line; a ``file://`` base URL is a folder. Raises SourceError if both are given."""
        if base_url and folder:
            raise SourceError("--base-url and --archives say two different things; give one of them")
        if base_url and urlsplit(base_url).scheme == "file":
            folder, base_url = Path(urllib.request.url2pathname(urlsplit(base_url).path)), None
        if base_url and urlsplit(base_url).scheme not in {"http", "https"}:
            raise SourceError(f"--base-url {base_url}: http://, https:// or file:// is expected")
        if folder and not folder.is_dir():
            raise SourceError(f"{folder}: no such folder of archives")
        return cls(store, base_url.rstrip("/") if base_url else None, folder.resolve() if folder else None)

    @property
    def official(self) -> bool:
        return self.base_url is None and self.folder is None

    def __str__(self) -> str:
        """Say which kind of source it is, for manifests; these do not record the paths of a machine."""
        if self.folder:
            return "a folder of archives"
        return f"base URL {self.base_url}" if self.base_url else "official host"

    def url(self, archive: Archive) -> str:
        return f"{self.base_url}/{quote(archive.name)}" if self.base_url else archive.url

    def size(self, archive: Archive) -> int | None:
        """Return the archive's size in bytes: None if the source lacks it, -1 if unknown. Official sizes are the catalogue's."""
        if self.folder:
            path = self.folder / archive.name
            return path.stat().st_size if path.is_file() else None
        if self.base_url:
            return head(self.url(archive))
        return -1 if archive.bytes is None else archive.bytes

    def obtain(self, archive: Archive) -> Path:
        """Return the archive's file, downloaded if need be.

        Raises:
            SourceError: the source lacks it, or the download failed.
        """
        if self.folder is None:
            return download(self.url(archive), self.store / archive.name)
        path = self.folder / archive.name
        if not path.is_file():
            raise SourceError(f"{path}: no such archive; the official one is at {archive.url}")
        return path

    def sums(self) -> dict[str, str]:
        """Return SHA-256 by archive name, from the ``SHA256SUMS`` in the user's folder or at the base URL; empty if there is none.

        Raises:
            SourceError: it can't be fetched or is no file, or a line is not a checksum and a name, or names a file again.
        """
        where = f"{self.folder or self.base_url}/{SUMS}"
        content = self._sums()
        if content is None:
            return {}
        sums: dict[str, str] = {}
        for number, line in enumerate(content.decode("utf-8", "replace").split("\n"), 1):
            if row := _SUM.fullmatch(line.strip()):
                if sums.setdefault(row[2], row[1].lower()) != row[1].lower():
                    raise SourceError(f"{where}: line {number} has another checksum for a file that is named before")
            elif line.strip():
                raise SourceError(f"{where}: line {number} is not a SHA-256 and the name of a file")
        if not sums:
            raise SourceError(f"{where}: holds no checksum")
        return sums

    def _sums(self) -> bytes | None:
        """The content of ``SHA256SUMS``; None if there is none."""
        if self.folder:
            path = self.folder / SUMS
            if path.is_symlink() or path.exists():
                if not path.is_file():
                    raise SourceError(f"{path}: not a file")
                return path.read_bytes()
        elif self.base_url:
            content = _ask(f"{self.base_url}/{SUMS}", "GET", lambda response: _read(response, _MOST_SUMS + 1))
            if content is not None and len(content) > _MOST_SUMS:
                raise SourceError(f"{self.base_url}/{SUMS}: larger than {_MOST_SUMS:,} bytes")
            return content
        return None

    def absent(self, names: Iterable[str]) -> list[str]:
        """Return which of these archives the user's folder lacks; none where there is no folder to look into."""
        there = {path.relative_to(self.folder).as_posix() for path in self.folder.rglob("*")} if self.folder else set(names)
        return [name for name in names if name not in there]


def digest(path: Path, algorithm: str) -> str:
    """Return the hexadecimal digest of a file by an algorithm of ``hashlib``."""
    with path.open("rb") as file:
        return file_digest(file, algorithm).hexdigest()
