"""Readers of tar and zip archives: member by member, without extracting them, so that no name in an
archive becomes a path by itself.
"""

from __future__ import annotations

import gzip
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path, PurePosixPath
from typing import IO, Any

from data_prep.io.entry import SourceError
from fedmuscle_lib.core.errors import prefixed

Members = Iterator[tuple[str, IO[bytes]]]
_DAMAGE = (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, EOFError)


@contextmanager
def opened(path: Path) -> Iterator[Members]:
    """Open an archive as an iterator of its regular files: pairs of name and open file. Read a file
    before you ask for the next.

    Raises:
        SourceError: the archive is damaged; the message names it.
    """
    try:
        with path.open("rb") as file:
            yield _zip(file) if file.peek(4).startswith(b"PK\x03\x04") else nested(file)
    except _DAMAGE as error:
        raise SourceError(
            f"{path}: a damaged archive ({type(error).__name__}: {error}); delete it and run the"
            " command again"
        ) from None


def _zip(file: IO[bytes]) -> Members:
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            if not member.is_dir():
                with archive.open(member) as content:
                    yield member.filename, content


def nested(file: Any) -> Members:
    """Iterate over the members of a tar archive, which may itself be a member of another."""
    packed = file.peek(2).startswith(b"\x1f\x8b")
    with (
        gzip.open(file) if packed else nullcontext(file) as raw,  # tarfile's own stops at damage
        tarfile.open(fileobj=raw, mode="r|" if packed else "r:") as archive,
    ):
        for member in archive:
            if member.isreg() and (content := archive.extractfile(member)):
                yield member.name, content


def contents(path: Path, wanted: Callable[[PurePosixPath], bool]) -> dict[str, bytes]:
    """Return the contents of the wanted files of an archive, by their names in it."""
    with opened(path) as members:
        return {name: file.read() for name, file in members if wanted(PurePosixPath(name))}


def needed(
    path: Path, names: Collection[str], optional: Collection[str] = ()
) -> dict[str, tuple[bytes, str]]:
    """Return an archive's files of these names, in whichever folders: the content of each, and
    where it is, for errors.

    Raises:
        SourceError: the archive is damaged, or one of the ``names`` is missing.
    """
    found = contents(path, lambda member: member.name in {*names, *optional})
    files = {
        PurePosixPath(name).name: (content, f"{path}: {name}") for name, content in found.items()
    }
    if missing := {*names} - files.keys():
        raise SourceError(f"{path}: lacks {', '.join(sorted(missing))}")
    return files


def text_of(content: bytes, where: str) -> str:
    """Return the text of a file; raises SourceError, which names ``where`` it is, if it is not
    UTF-8.
    """
    with prefixed(f"{where}: not UTF-8", UnicodeDecodeError, SourceError):
        return content.decode()
