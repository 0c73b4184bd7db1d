"""Zips of a finished run's files, and of a profile's shipped runs."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from fedmuscle_lib.core import files
from fedmuscle_lib.core.errors import unreadable

ARCHIVE = "runs.zip"  # of a profile's shipped runs, beside its notebooks' folders
_EPOCH = (1980, 1, 1, 0, 0, 0)  # of files in a zip, so that equal runs are equal files


def zipped(members: Mapping[str, bytes], method: int) -> bytes:
    """A zip of files; equal files give equal bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name, content in members.items():
            file.writestr(zipfile.ZipInfo(name, _EPOCH), content, method)
    return buffer.getvalue()


def unzipped(file: Path | io.BytesIO) -> dict[str, bytes]:
    """The files of a zip, by name; raises what ``zipfile`` does if a checksum is wrong."""
    with zipfile.ZipFile(file) as content:
        return {name: content.read(name) for name in content.namelist()}


def archive(path: Path) -> Mapping[str, bytes]:
    """A profile's shipped runs by address, packed; none where there is no archive.

    Raises:
        DataError: naming the archive, which can't be read.
    """
    stamp = files.stamp_of(path)
    return _archive(path, stamp) if stamp else {}


@lru_cache(maxsize=8)
def _archive(path: Path, stamp: files.Stamp) -> dict[str, bytes]:
    """An archive while its stamp stays the same."""
    with unreadable(f"{path}: not a readable archive of runs"):
        return {
            name.removesuffix(".zip"): content
            for name, content in unzipped(path).items()
            if name.endswith(".zip")
        }


def write_archive(path: Path, runs: Mapping[str, bytes]) -> None:
    """Replace an archive by these runs, packed, by address.

    They are stored as they are: packing them again saves little, and git keeps a run that stays
    only once.
    """
    members = {f"{address}.zip": runs[address] for address in sorted(runs)}
    files.put(path, zipped(members, zipfile.ZIP_STORED))
