"""Resumable downloads, and sources of archives: the official host, a base URL, or a folder.

A note beside each download (``<name>.note.json``) holds its address, size and ETag. A partial
download resumes only if the server still has the same file, and a complete file is not fetched
again.

``requests`` makes the connections: proxies, certificates, redirections. ``pooch`` would fetch and
check a file in one call, but it begins a broken download again, and the archives have up to 19 GB;
torch.hub does the same. ``huggingface_hub`` resumes, but only from its own hub.

Every download ends, whatever the server does: an answer must begin in a minute, its bytes must come
at a pace, attempts must get further than the last ones, and a file has a largest size.
"""

from __future__ import annotations

import json
import re
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import quote, urlsplit

import requests
from tqdm import tqdm
from urllib3.exceptions import HTTPError

from data_prep.io.entry import Archive, SourceError
from fedmuscle_lib.core import ownership
from fedmuscle_lib.core.errors import line_of, prefixed
from fedmuscle_lib.core.files import named, put

TIMEOUT = 30  # seconds without a byte
ATTEMPTS = 5  # in a row that get no further
PAUSE = 1.0  # seconds before the second attempt, doubled each time
WINDOW, LEAST = (
    60.0,
    1 << 16,
)  # in so many seconds, and in an attempt that gets further, at least so many bytes
MOST = 1 << 37  # bytes of a file; COCO's largest archive has 2e10
_MOST_SUMS = 1 << 24
_MOST_REDIRECTIONS = 10
_CHUNK = 1 << 18
_AGAIN = {408, 416, 425, 429, 500, 502, 503, 504}
_ABSENT = {403, 404, 410}
_NO_HEAD = {405, 501}
_HEADERS = {"User-Agent": "fedmuscle-notebooks", "Accept-Encoding": "identity"}
SUMS = "SHA256SUMS"
_SUM = re.compile(r"([0-9a-fA-F]{64})\s+\*?(?:\./+)*(\S.*)")


def download(url: str, path: Path, *, quiet: bool = False) -> Path:
    """Fetch ``url`` to ``path``, which appears only when it is complete; ``<path>.part`` holds a
    partial download.

    A file without a note was put there by the user and is used as it is; so is one of another size
    than its note's.

    Raises:
        NotOurs: a link, or a partial download that no note tells of, lies beside ``path``.
        SourceError: the address does not exist, or attempts get no further; the next call resumes
            what is kept.
        OSError: the file can't be written; the message names it.
    """
    note = path.with_name(path.name + ".note.json")
    known = _known(note)
    if path.exists() and (
        known.get("url", url) == url or known.get("total") not in {None, _size(path)}
    ):
        return path
    part = path.with_name(path.name + ".part")
    for place in (path, note, part):
        ownership.reach(place, path.parent)
    if part.exists() and not note.exists():
        raise ownership.NotOurs(f"{part}: no note beside it tells where it is from; move it away")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)  # it is another address's, and the note is about to say otherwise
    failures, furthest, whole = 0, _size(part), False
    reasons: list[str] = []
    while True:
        try:
            _attempt(url, part, note, quiet, whole)
            break
        except _BrokeOff as error:
            reason, whole = str(error), error.whole
        if (
            _size(part) >= furthest + LEAST
        ):  # bytes that are fetched again after a part was discarded are no progress
            failures, furthest, reasons = 0, _size(part), []
        failures += 1
        reasons += [reason] if reason not in reasons else []
        if failures == ATTEMPTS:
            kept = (
                f"{_size(part):,} bytes are kept in {part}; "
                if _size(part)
                else "nothing is kept; "
            )
            raise SourceError(
                f"{url}: could not be downloaded ({'; '.join(reasons)}); {kept}run the same command"
                " again to go on"
            )
        time.sleep(PAUSE * 2 ** (failures - 1))
    part.replace(path)
    return path


def discard(path: Path) -> None:
    """Remove what :func:`download` fetched; a file without a note, or of another size than its
    note's, is the user's and stays.
    """
    if _known(path.with_name(path.name + ".note.json")).get("total", -1) in {None, _size(path)}:
        ownership.discard(path)


class _BrokeOff(Exception):
    """An attempt failed, and another may not; ``whole`` says that it should not ask for a range."""

    def __init__(self, reason: str, whole: bool = False) -> None:
        super().__init__(line_of(reason))
        self.whole = whole


def _known(note: Path) -> dict[str, Any]:
    """Return the note of a download: its address, and the headers that identify the server's file;
    empty if it is none of ours.
    """
    try:
        content = json.loads(note.read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    texts = isinstance(content, dict) and all(
        isinstance(content.get(name), str | None) for name in ("url", "etag", "modified")
    )
    return content if texts else {}


def _attempt(url: str, part: Path, note: Path, quiet: bool, whole: bool) -> None:
    """Receive what is missing of a file, or all of it.

    Raises:
        _BrokeOff: another attempt may succeed.
        SourceError: no attempt will.
    """
    known = _known(note)
    have = 0 if whole or known.get("url") != url else _size(part)
    headers = {"Range": f"bytes={have}-"} if have else {}
    # a weak ETag may not be asked for by If-Range; the answer's headers are compared in any case
    if have and known.get("etag") and not known["etag"].startswith("W/"):
        headers["If-Range"] = known["etag"]
    with _answered(url, headers) as response:
        total = _total(response)
        fresh = {
            "url": url,
            "etag": _said(response, "ETag"),
            "modified": _said(response, "Last-Modified"),
            "total": total,
        }
        if total is not None and total > MOST:
            raise SourceError(
                f"{url}: the server says that it has {total:,} bytes; at most {MOST:,} are fetched"
            )
        if response.status_code == 416 and have == total == known.get("total"):
            return  # the part is whole
        if have and (
            response.status_code == 416 or (response.status_code == 206 and fresh != known)
        ):
            part.unlink()
            raise _BrokeOff(
                "the server's file is no longer the one of the part, which is discarded"
                f" ({response.status_code})"
            )
        if response.status_code == 206 and have:
            if not response.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
                raise _BrokeOff(
                    f"asked for bytes {have}-, the server sends"
                    f" {response.headers.get('Content-Range')}",
                    whole=True,
                )
        elif response.status_code == 200:
            have = 0
            part.unlink(missing_ok=True)
            put(note, json.dumps(fresh).encode())
        elif response.status_code < 300 or response.status_code in _AGAIN:
            raise _BrokeOff(_answer(response))
        else:
            raise SourceError(f"{url}: {_answer(response)}")
        _receive(_blocks(response), part, have, total, quiet)


def _receive(
    blocks: Iterable[bytes], part: Path, have: int, total: int | None, quiet: bool
) -> None:
    name, most = part.name.removesuffix(".part"), MOST if total is None else total
    bar = tqdm(
        total=total,
        initial=have,
        unit="B",
        unit_scale=True,
        desc=name,
        leave=False,
        disable=True if quiet else None,
    )
    with (
        named(part),
        part.open("ab" if have else "wb") as out,
        bar,
    ):  # errors of reading are no OSErrors
        for block in blocks:
            have += len(block)
            if have > most:
                raise _BrokeOff(f"the server sends more than {most:,} bytes", whole=True)
            out.write(block)
            bar.update(len(block))
    if total is not None and have != total:
        raise _BrokeOff(f"broke off at {have:,} of {total:,} bytes")


# --- the connection


@contextmanager
def _answered(
    url: str, headers: dict[str, str], method: str = "GET"
) -> Iterator[requests.Response]:
    """The server's answer, whatever its status.

    Raises:
        _BrokeOff: the server can't be reached, or its answer is none of HTTP's.
        SourceError: an address that is neither http nor https.
    """
    if urlsplit(url).scheme not in {"http", "https"}:
        raise SourceError(f"{url}: neither http nor https")
    with requests.Session() as session:
        session.max_redirects = _MOST_REDIRECTIONS
        with _network():
            response = _begun(
                lambda: session.request(
                    method, url, headers=_HEADERS | headers, stream=True, timeout=TIMEOUT
                )
            )
        with response:
            yield response


def _begun(ask: Callable[[], requests.Response]) -> requests.Response:
    """Return the answer if it begins in ``WINDOW`` seconds: a timeout alone would let a server send
    a byte of a header now and then.
    """
    future: Future[requests.Response] = Future()

    def run() -> None:
        try:
            future.set_result(ask())
        except BaseException as error:
            future.set_exception(error)

    Thread(target=run, daemon=True).start()
    try:
        return future.result(WINDOW)
    except TimeoutError:
        raise _BrokeOff(f"the server's answer did not begin in {WINDOW:g} s") from None


def _blocks(response: requests.Response) -> Iterator[bytes]:
    """Yield the content in pieces, as long as they come at a pace; raises _BrokeOff."""
    response.raw.enforce_content_length = False  # the caller counts
    start, got = time.monotonic(), 0
    while True:
        with _network():
            block = response.raw.read1(_CHUNK)
        if not block:
            return
        got += len(block)
        if (seconds := time.monotonic() - start) > WINDOW:
            if got < LEAST:
                raise _BrokeOff(f"the server sent {got:,} bytes in {seconds:.0f} s")
            start, got = time.monotonic(), 0
        yield block


@contextmanager
def _network() -> Iterator[None]:
    """Turn what the connection, or what came through it, can raise into ``_BrokeOff``."""
    try:
        yield
    except (
        OSError,
        HTTPError,
        HTTPException,
        ValueError,
    ) as error:  # the last of addresses and headers that are none
        root: BaseException = error
        while root.__context__:  # requests and urllib3 wrap what happened
            root = root.__context__
        raise _BrokeOff(str(root) or type(root).__name__) from None


def _answer(response: requests.Response) -> str:
    return line_of(f"the server answers {response.status_code} {response.reason}")


def _said(response: requests.Response, name: str) -> str | None:
    """A header that can be sent back."""
    value = response.headers.get(name)
    return value if value is not None and value.isascii() and value.isprintable() else None


def _total(response: requests.Response) -> int | None:
    """Return the size of the whole file: the number behind the slash of Content-Range, or
    Content-Length.
    """
    of = response.headers.get("Content-Range", "").rpartition("/")[2] or response.headers.get(
        "Content-Length", ""
    )
    return int(of) if of.isascii() and of.isdigit() and len(of) < 19 else None


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


@contextmanager
def _asked(url: str, method: str = "GET") -> Iterator[requests.Response | None]:
    """The server's answer, None if the file does not exist, or SourceError.

    A server that knows no HEAD is asked to GET.
    """
    with prefixed(url, _BrokeOff, SourceError), _answered(url, {}, method) as response:
        if method == "HEAD" and response.status_code in _NO_HEAD:
            with _asked(url) as gotten:
                yield gotten
            return
        if response.status_code != 200 and response.status_code not in _ABSENT:
            raise SourceError(f"{url}: {_answer(response)}")
        yield response if response.status_code == 200 else None


def size_of(url: str) -> int | None:
    """Size in bytes that the server states for a file: -1 if none, None if there is no file; raises
    SourceError if it can't be reached.
    """
    with _asked(url, "HEAD") as response:
        total = _total(response) if response else None
        return -1 if response and total is None else total


@dataclass(frozen=True)
class Source:
    """Source of archives: a folder, a base URL, or the official host.

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
        """Build a source from the command line; a ``file://`` base URL is a folder.

        Raises SourceError if both are given.
        """
        if base_url and folder:
            raise SourceError(
                "--base-url and --archives say two different things; give one of them"
            )
        try:
            asked = urlsplit(base_url or "")
            asked.port  # noqa: B018  # reading it raises for a port that is no number
        except ValueError as error:
            raise SourceError(f"--base-url {base_url}: not an address ({error})") from None
        if asked.scheme == "file":
            folder, base_url = Path(urllib.request.url2pathname(asked.path)), None
        if base_url and (asked.scheme not in {"http", "https"} or not asked.hostname):
            raise SourceError(
                f"--base-url {base_url}: http://HOST, https://HOST or file://FOLDER is expected"
            )
        if folder and not folder.is_dir():
            raise SourceError(f"{folder}: no such folder of archives")
        return cls(
            store, base_url.rstrip("/") if base_url else None, folder.resolve() if folder else None
        )

    @property
    def official(self) -> bool:
        return self.base_url is None and self.folder is None

    def __str__(self) -> str:
        """Say which kind of source it is, for manifests; these do not record the paths of a
        machine.
        """
        if self.folder:
            return "a folder of archives"
        return f"base URL {self.base_url}" if self.base_url else "official host"

    def url(self, archive: Archive) -> str:
        return f"{self.base_url}/{quote(archive.name)}" if self.base_url else archive.url

    def size(self, archive: Archive) -> int | None:
        """Return the archive's size in bytes: None if the source lacks it, -1 if unknown.

        Official sizes are the catalogue's.
        """
        if self.folder:
            path = self.folder / archive.name
            return path.stat().st_size if path.is_file() else None
        if self.base_url:
            return size_of(self.url(archive))
        return -1 if archive.bytes is None else archive.bytes

    def obtain(self, archive: Archive, *, quiet: bool = False) -> Path:
        """Return the archive's file, downloaded if need be, without a progress bar if ``quiet``;
        raises SourceError if it can't be had.
        """
        if self.folder is None:
            return download(self.url(archive), self.store / archive.name, quiet=quiet)
        path = self.folder / archive.name
        if not path.is_file():
            raise SourceError(f"{path}: no such archive; the official one is at {archive.url}")
        return path

    def sums(self) -> dict[str, str]:
        """Return SHA-256 by archive name, from the ``SHA256SUMS`` in the user's folder or at the
        base URL; empty if there is none.

        Raises:
            SourceError: it can't be fetched or is no file, or a line is not a checksum and a name,
                or names a file again.
        """
        where = f"{self.folder or self.base_url}/{SUMS}"
        content = self._sums()
        if content is None:
            return {}
        sums: dict[str, str] = {}
        for number, line in enumerate(content.decode("utf-8", "replace").split("\n"), 1):
            if row := _SUM.fullmatch(line.strip()):
                if sums.setdefault(row[2], row[1].lower()) != row[1].lower():
                    raise SourceError(
                        f"{where}: line {number} has another checksum for a file that is named"
                        " before"
                    )
            elif line.strip():
                raise SourceError(f"{where}: line {number} is not a SHA-256 and the name of a file")
        if not sums:
            raise SourceError(f"{where}: holds no checksum")
        return sums

    def _sums(self) -> bytes | None:
        """The content of ``SHA256SUMS``; None if there is none."""
        if self.folder:
            path = self.folder / SUMS
            if path.is_file():
                return path.read_bytes()
            if path.is_symlink() or path.exists():
                raise SourceError(f"{path}: not a file")
        if not self.base_url:
            return None
        with _asked(f"{self.base_url}/{SUMS}") as response:
            content = b""
            for block in _blocks(response) if response else ():
                content += block
                if len(content) > _MOST_SUMS:
                    raise SourceError(f"{self.base_url}/{SUMS}: larger than {_MOST_SUMS:,} bytes")
            return content if response else None

    def absent(self, names: Iterable[str]) -> list[str]:
        """Return which of these archives the user's folder lacks; none where there is no folder to
        look into.
        """
        there = (
            {path.relative_to(self.folder).as_posix() for path in self.folder.rglob("*")}
            if self.folder
            else set(names)
        )
        return [name for name in names if name not in there]
