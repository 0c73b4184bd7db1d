"""Resumable downloads, and sources of archives: the official host, a base URL, or a folder.

``pooch`` would fetch and check a file in one call, but it begins an interrupted download again, and
the archives have up to 19 GB.
"""

from __future__ import annotations

import re
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit

import requests
from tqdm import tqdm

from data_prep.io.entry import Archive, SourceError

TIMEOUT = 30  # seconds without a byte
ATTEMPTS = 5  # in a row that get no further
PAUSE = 1.0  # seconds before the second attempt, doubled each time
_CHUNK = 1 << 16
_HEADERS = {"User-Agent": "fedmuscle-notebooks", "Accept-Encoding": "identity"}
_SUM = re.compile(r"([0-9a-fA-F]{64})\s+\*?(?:\./)?(\S.*)")


def download(url: str, path: Path, *, quiet: bool = False) -> Path:
    """Fetch ``url`` to ``path``, which appears only when it is complete. A file that is there is
    used as it is.

    ``<path>.part`` holds a partial download, and ``<path>.part.etag`` what the server called the
    file. The download resumes if the server still has the same file.

    Raises:
        SourceError: the address does not exist, or attempts get no further; the next call resumes.
    """
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    part, etag = (path.with_name(path.name + end) for end in (".part", ".part.etag"))
    failures = 0
    while True:
        before = _size(part)
        try:
            _receive(url, part, etag, quiet)
            break
        except requests.RequestException as error:
            failures = 1 if _size(part) > before else failures + 1
            if failures == ATTEMPTS or _is_final(error):
                raise SourceError(
                    f"{url}: could not be downloaded ({error}); {_size(part):,} bytes are kept in"
                    f" {part}; run the same command again to resume"
                ) from None
            time.sleep(PAUSE * 2 ** (failures - 1))
    part.replace(path)
    etag.unlink(missing_ok=True)
    return path


def _receive(url: str, part: Path, etag: Path, quiet: bool) -> None:
    """Receive what is missing of a file, or all of it if the server's file is another one."""
    known = etag.read_text() if etag.exists() else ""
    have = _size(part) if known else 0
    headers = _HEADERS | ({"Range": f"bytes={have}-", "If-Range": known} if have else {})
    with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT) as response:
        if response.status_code == 416:  # the part is longer than the file
            part.unlink()
        response.raise_for_status()
        if response.status_code != 206:
            have = 0
            named = response.headers.get("ETag", "")
            if not named or named.startswith("W/"):  # If-Range takes no weak ETag
                named = response.headers.get("Last-Modified", "")
            etag.write_text(named)
        total = have + int(response.headers.get("Content-Length", 0))
        bar = tqdm(
            total=total or None,
            initial=have,
            unit="B",
            unit_scale=True,
            desc=part.stem,
            leave=False,
            disable=True if quiet else None,
        )
        with part.open("ab" if have else "wb") as out, bar:
            for block in response.iter_content(_CHUNK):
                out.write(block)
                bar.update(len(block))


def _is_final(error: requests.RequestException) -> bool:
    """Return whether the server refuses the address, so that no attempt will succeed."""
    status = error.response.status_code if error.response is not None else 0
    return 400 <= status < 500 and status not in {408, 416, 429}


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


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

        Raises:
            SourceError: both are given, or one is no address or no folder.
        """
        if base_url and folder:
            raise SourceError(
                "--base-url and --archives say two different things; give one of them"
            )
        asked = urlsplit(base_url or "")
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
            with _asked(self.url(archive)) as response:
                size = int(response.headers.get("Content-Length", -1))
                return size if response.ok else None
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
        """
        content = ""
        if self.folder and (self.folder / "SHA256SUMS").is_file():
            content = (self.folder / "SHA256SUMS").read_text()
        elif self.base_url:
            with _asked(f"{self.base_url}/SHA256SUMS") as response:
                content = response.text if response.ok else ""
        rows = [_SUM.fullmatch(line.strip()) for line in content.splitlines() if line.strip()]
        if not all(rows):
            where = self.folder or self.base_url
            raise SourceError(f"{where}/SHA256SUMS: a line is not a SHA-256 and the name of a file")
        return {row[2]: row[1].lower() for row in rows if row}


def _asked(url: str) -> requests.Response:
    try:
        return requests.get(url, headers=_HEADERS, stream=True, timeout=TIMEOUT)
    except requests.RequestException as error:
        raise SourceError(f"{url}: {error}") from None
