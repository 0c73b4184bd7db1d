"""Resumable downloads, and where archives come from: the official host, a base URL, or a folder.

A note beside each download (``<name>.note.json``) holds its address, size and ETag. A partial download resumes only if the server
still has the same file, and a complete file is not fetched again. The standard library suffices, since no login is needed.
"""

from __future__ import annotations

import http.client
import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from email.message import Message
from hashlib import file_digest
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote, urlsplit

from tqdm import tqdm

from data_prep.io.entry import Archive, SourceError
from data_prep.io.files import named

TIMEOUT = 30  # seconds without a byte
ATTEMPTS = 5  # in a row that bring nothing
PAUSE = 1.0  # seconds before the second attempt, doubled each time
_CHUNK = 1 << 18
_AGAIN = {408, 425, 429, 500, 502, 503, 504}
_ABSENT = {403, 404, 410}
_NO_HEAD = {405, 501}
_HEADERS = {"User-Agent": "fedmuscle-notebooks", "Accept-Encoding": "identity"}
SUMS = "SHA256SUMS"
_SUM = re.compile(r"([0-9a-fA-F]{64})\s+\*?(\S.*)")
T = TypeVar("T")


def download(url: str, path: Path, *, quiet: bool = False) -> Path:
    """Fetch ``url`` to ``path``, which appears only when it is complete; ``<path>.part`` holds a partial download.

    A file without a note was put there by the user and is used as it is.

    Raises:
        SourceError: the address does not exist, or the download broke off too often; the next call resumes it.
    """
    note = _Note(path)
    if path.exists() and note.read().get("url", url) == url:
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)  # it is another address's, and the note is about to say otherwise
    part = path.with_name(path.name + ".part")
    failures = 0
    while True:
        before = _size(part)
        try:
            _attempt(url, part, note, quiet)
            break
        except urllib.error.HTTPError as error:
            if error.code not in _AGAIN:
                raise SourceError(f"{url}: the server answers {error.code} {error.reason}") from None
            reason = f"{error.code} {error.reason}"
        except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError, _BrokeOff) as error:
            reason = str(getattr(error, "reason", "") or error) or type(error).__name__
        failures = 1 if _size(part) > before else failures + 1
        if failures == ATTEMPTS:
            kept = f"{_size(part):,} bytes are kept in {part}; " if _size(part) else ""
            raise SourceError(f"{url}: could not be downloaded ({reason}); {kept}run the same command again to go on") from None
        time.sleep(PAUSE * 2 ** (failures - 1))
    part.replace(path)
    return path


class _BrokeOff(Exception):
    pass


class _Note:
    """What is known of a download: its address, and the headers that identify the server's file."""

    def __init__(self, path: Path) -> None:
        self.path = path.with_name(path.name + ".note.json")

    def read(self) -> dict:
        try:
            content = json.loads(self.path.read_text())
            return content if isinstance(content, dict) else {}
        except (OSError, ValueError):
            return {}

    def write(self, content: dict) -> None:
        self.path.write_text(json.dumps(content))


def _attempt(url: str, part: Path, note: _Note, quiet: bool) -> None:
    known, have = note.read(), _size(part)
    if known.get("url") != url:
        have = 0
    headers = dict(_HEADERS)
    if have:
        headers["Range"] = f"bytes={have}-"
        # a weak ETag may not be asked for by If-Range; the answer's headers are compared in any case
        if known.get("etag") and not known["etag"].startswith("W/"):
            headers["If-Range"] = known["etag"]
    try:
        response = _open(urllib.request.Request(url, headers=headers))
    except urllib.error.HTTPError as error:
        if error.code != 416:
            raise
        if have and _total(error.headers) == have == known.get("total"):
            return  # the part is whole
        part.unlink()
        raise _BrokeOff("the server's file is no longer the one of the part; starting anew") from None
    with response:
        etag, modified, total = response.headers.get("ETag"), response.headers.get("Last-Modified"), _total(response.headers)
        fresh = {"url": url, "etag": etag, "modified": modified, "total": total}
        if response.status == 206:
            if fresh != known or not (response.headers.get("Content-Range") or "").startswith(f"bytes {have}-"):
                part.unlink()
                raise _BrokeOff("the server's file is no longer the one of the part; starting anew")
        else:
            have = 0
            part.unlink(missing_ok=True)
            note.write(fresh)
        _receive(response, part, have, total, quiet)


def _receive(response: http.client.HTTPResponse, part: Path, have: int, total: int | None, quiet: bool) -> None:
    name = part.name.removesuffix(".part")
    bar = tqdm(total=total, initial=have, unit="B", unit_scale=True, desc=name, leave=False, disable=True if quiet else None)
    with part.open("ab" if have else "wb") as out, bar:
        while block := response.read(_CHUNK):
            with named(part):  # not the reading: its errors are another's, and tried again
                out.write(block)
            have += len(block)
            bar.update(len(block))
        with named(part):
            out.flush()
    if total is not None and have != total:
        raise _BrokeOff(f"broke off at {have:,} of {total:,} bytes")


def _open(request: urllib.request.Request) -> http.client.HTTPResponse:
    if urlsplit(request.full_url).scheme not in {"http", "https"}:
        raise SourceError(f"{request.full_url}: neither http nor https")
    return urllib.request.urlopen(request, timeout=TIMEOUT)


def _total(headers: Message) -> int | None:
    """Return the size of the whole file: the number behind the slash of Content-Range, or Content-Length."""
    of = (headers.get("Content-Range") or "").rpartition("/")[2] or headers.get("Content-Length") or ""
    return int(of) if of.isdigit() else None


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
        with _open(urllib.request.Request(url, method=method, headers=_HEADERS)) as response:
            return answer(response)
    except urllib.error.HTTPError as error:
        if error.code in _ABSENT:
            return None
        if method == "HEAD" and error.code in _NO_HEAD:
            return _ask(url, "GET", answer)
        raise SourceError(f"{url}: the server answers {error.code} {error.reason}") from None
    except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
        raise SourceError(f"{url}: {getattr(error, 'reason', error)}") from None


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
            SourceError: it can't be fetched, or a line is not a checksum and a name.
        """
        content = b""
        if self.folder:
            content = (self.folder / SUMS).read_bytes() if (self.folder / SUMS).is_file() else b""
        elif self.base_url:
            content = _ask(f"{self.base_url}/{SUMS}", "GET", lambda response: response.read()) or b""
        sums = {}
        for number, line in enumerate(content.decode("utf-8", "replace").split("\n"), 1):
            if row := _SUM.fullmatch(line.strip()):
                sums[row[2]] = row[1].lower()
            elif line.strip():
                raise SourceError(f"{self.folder or self.base_url}/{SUMS}: line {number} is not a SHA-256 and the name of a file")
        return sums


def digest(path: Path, algorithm: str) -> str:
    """Return the hexadecimal digest of a file by an algorithm of ``hashlib``."""
    with path.open("rb") as file:
        return file_digest(file, algorithm).hexdigest()
