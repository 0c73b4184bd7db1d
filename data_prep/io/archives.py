"""Reads tar and zip archives member by member without extracting them, so that no name in an archive becomes a path by itself.

A damaged archive is refused by name. Python's ``tarfile`` alone would stop without an error at a torn or garbled header.
"""

from __future__ import annotations

import gzip
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, NoReturn, Self

from data_prep.io.entry import SourceError

Members = Iterator[tuple[str, IO[bytes]]]
_DAMAGE = (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, EOFError, NotImplementedError)


@contextmanager
def opened(path: Path) -> Iterator[Members]:
    """Open an archive as an iterator of its regular files: pairs of name and open file. Read a file before you ask for the next.

    Raises:
        SourceError: the archive is damaged, or holds a link, a device or a name that points outside; the message names it.
    """
    try:
        with path.open("rb") as file:
            yield _members(file, path)
    except _DAMAGE as error:
        raise SourceError(f"{path}: a damaged archive ({type(error).__name__}: {error}); delete it and run the command again") from None


def nested(file: IO[bytes], path: Path) -> Members:
    """Iterate over the members of ``file``, an archive that is itself a member of ``path``."""
    return _tar(file, path)


def text_of(file: IO[bytes], name: str, path: Path) -> str:
    """Return the text of the member ``name`` of the archive ``path``; raises SourceError if it is not UTF-8."""
    try:
        return file.read().decode()
    except UnicodeDecodeError as error:
        raise SourceError(f"{path}: {name}: not UTF-8 ({error})") from None


def plain_name(name: str, path: Path) -> str:
    """Return the name if it is a plain file name.

    Raises:
        SourceError: it is empty, stands for a folder, or has separators.
    """
    if not name or name in {".", ".."} or any(c in name for c in "/\\:\0"):
        _refuse(path, name, "as the name of a file")
    return name


def _members(file: IO[bytes], path: Path) -> Members:
    if file.read(4) == b"PK\x03\x04":
        yield from _zip(file, path)
    else:
        file.seek(0)
        yield from _tar(file, path)


def _zip(file: IO[bytes], path: Path) -> Members:
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            check_name(member.filename, path)
            kind = stat.S_IFMT(member.external_attr >> 16)
            if kind not in {0, stat.S_IFREG, stat.S_IFDIR}:
                _refuse(path, member.filename, "a link or a device")
            if member.flag_bits & 1:
                _refuse(path, member.filename, "encrypted")
            if not member.is_dir():
                with archive.open(member) as content:
                    yield member.filename, content


class _StrictHeader(tarfile.TarInfo):
    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        try:
            return super().frombuf(buf, encoding, errors)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]  # the zero block that ends an archive; the stubs lack it
            raise
        except tarfile.HeaderError as error:
            raise EOFError(f"no header where one must be: {error}") from None


def _tar(file: IO[bytes], path: Path) -> Members:
    with gzip.open(file) if _is_gzip(file) else _left_open(file) as raw:
        with tarfile.open(fileobj=raw, mode="r|", tarinfo=_StrictHeader) as archive:
            for member in archive:
                check_name(member.name, path)
                if member.isreg():
                    content = archive.extractfile(member)
                    assert content  # as of every regular file
                    yield member.name, content
                elif not member.isdir():
                    _refuse(path, member.name, "a link or a device")
        while raw.read(1 << 20):  # gzip's checksum stands at its very end
            pass


@contextmanager
def _left_open(file: IO[bytes]) -> Iterator[IO[bytes]]:
    yield file


def _is_gzip(file: IO[bytes]) -> bool:
    start = file.tell()
    magic = file.read(2)
    file.seek(start)
    return magic == b"\x1f\x8b"


def check_name(name: str, path: Path) -> None:
    """Raise SourceError if a name in an archive, or in a list, points outside; the message names it."""
    pure = PurePosixPath(name)
    if pure.is_absolute() or ".." in pure.parts or "\\" in name or ":" in (pure.parts or ("",))[0] or "\0" in name:
        _refuse(path, name, "a name that leaves its folder")


def _refuse(path: Path, name: str, why: str) -> NoReturn:
    raise SourceError(f"{path}: refused: it holds {name!r}, {why}")
