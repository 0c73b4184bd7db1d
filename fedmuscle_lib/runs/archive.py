"""Zips with the SHA-256 of their files inside: a finished run, and the archive of a profile's
shipped runs.
"""

from __future__ import annotations

import hashlib
import io
import re
import zipfile
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from fedmuscle_lib.core import files
from fedmuscle_lib.core.errors import DataError, line_of, out_of_memory, unreadable

ARCHIVE = "runs.zip"  # of a profile's shipped runs, beside its notebooks' folders
SUMS = "SHA256SUMS"
MOST = 1 << 28  # bytes of a zip, packed and unpacked; the largest shipped run has 20 kB
_EPOCH = (1980, 1, 1, 0, 0, 0)  # of files in a zip, so that equal runs are equal files


class Damaged(ValueError):
    """A stored file is not what was written; the message names it."""


def zipped(members: Mapping[str, bytes], method: int) -> bytes:
    """A zip of files and of their SHA-256; equal files give equal bytes."""
    sums = "".join(f"{sha256(content)}  {name}\n" for name, content in members.items())
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name, content in {**members, SUMS: sums.encode()}.items():
            file.writestr(zipfile.ZipInfo(name, _EPOCH), content, method)
    return buffer.getvalue()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class Sealed:
    """The files of a zip that :func:`zipped` gave. Each is read, and compared with its SHA-256,
    when it is asked for.

    Attributes:
        sums: SHA-256 by file name.

    Raises:
        Damaged: naming ``place``; it is no such zip, or its files are not those that it has a
            SHA-256 of.
    """

    def __init__(self, content: bytes, place: str) -> None:
        self._place = place
        with unreadable(f"{place}: not a readable zip of ours", Damaged):
            self._zip = zipfile.ZipFile(io.BytesIO(content))
            names = self._zip.namelist()
            if (
                len(names) != len(set(names))
                or sum(info.file_size for info in self._zip.infolist()) > MOST
            ):
                raise ValueError("a name twice, or files larger than a run's")
            lines = [_line(line) for line in self._zip.read(SUMS).decode().splitlines()]
        self.sums = dict(lines)
        if others := self.sums.keys() ^ set(names) - {SUMS}:
            raise Damaged(f"{place}: {line_of(min(others))} lacks its SHA-256, or is missing")

    def read(self, name: str) -> bytes:
        """A file's content; raises Damaged, which names ``place`` and the file, if it is not what
        was written.
        """
        try:
            content = self._zip.read(name)
        except Exception as error:  # zipfile and zlib have kinds of their own
            if out_of_memory(error):
                raise
            content = b""
        if sha256(content) != self.sums.get(name):
            raise Damaged(f"{self._place}: {name} is not what was written")
        return content

    def nbytes(self, name: str) -> int:
        """Size of a file as it is packed."""
        return self._zip.getinfo(name).compress_size


def _line(line: str) -> tuple[str, str]:
    """Name and SHA-256."""
    if not (row := re.fullmatch(r"([0-9a-f]{64})  ([\w.-]+)", line)):
        raise ValueError(f"{SUMS} has the line {line_of(line)!r}")
    return row[2], row[1]


def archive(path: Path) -> Sealed:
    """A profile's shipped runs, the files ``<address>.zip`` of its archive; no file where there is
    no archive.

    Raises:
        Damaged: naming the archive.
    """
    if not path.exists():
        return Sealed(zipped({}, zipfile.ZIP_STORED), str(path))
    try:
        return _archive(path, files.stamp_of(path))
    except DataError as error:
        raise Damaged(str(error)) from None


@lru_cache(maxsize=8)
def _archive(path: Path, stamp: files.Stamp | None) -> Sealed:
    """An archive as it is while its stamp stays: it is read once, and its runs are unpacked when
    they are asked for.
    """
    found = Sealed(files.read_bytes(path, MOST), str(path))
    if not all(
        name.endswith(".zip") for name in found.sums
    ):  # a truncated one ends with a run, which is a zip too
        raise Damaged(f"{path}: truncated, or no archive of runs")
    return found


def write_archive(path: Path, runs: Mapping[str, bytes]) -> None:
    """Put the runs' files, by address, in the place of an archive at once.

    They are stored as they are: packing them again saves little, and git keeps a run that stays
        only once.
    """
    files.put(
        path,
        zipped({f"{address}.zip": runs[address] for address in sorted(runs)}, zipfile.ZIP_STORED),
    )
