"""Readers of tar and zip archives: member by member, without extracting them, so that no name in an
archive becomes a path by itself.

A damaged archive is refused by name. Python's ``tarfile`` alone would stop without an error at a
torn or garbled header. Its ``data`` filter is for extraction, which would need the disk twice, and
keeps links; here nothing is extracted, and links are refused.
"""

from __future__ import annotations

import gzip
import io
import lzma
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path, PurePosixPath
from typing import IO, Any, NoReturn, Self

from data_prep.io.entry import SourceError
from fedmuscle_lib.core.errors import prefixed

Members = Iterator[tuple[str, io.BufferedReader]]
_Raw = Iterator[tuple[str, IO[bytes]]]
LARGEST = (
    1 << 30
)  # bytes of a member: the largest of a data set is Yahoo's train.csv, of less than 800 MB
_LARGEST_NAME = (
    1 << 20
)  # bytes of a tar's long name or further header, which tarfile reads into memory
_NAMES = {
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
}
_DAMAGE = (
    *(
        tarfile.TarError,
        zipfile.BadZipFile,
        zlib.error,
        lzma.LZMAError,
        struct.error,
        EOFError,
        NotImplementedError,
    ),
    *(
        OSError,
        ValueError,
        OverflowError,
        RecursionError,
    ),  # of gzip and bz2, and of what parses a garbled header
)


@contextmanager
def opened(path: Path) -> Iterator[Members]:
    """Open an archive as an iterator of its regular files: pairs of name and open file. Read a file
    before you ask for the next.

    Raises:
        SourceError: the archive is damaged, or holds a link, a device, a sparse or huge file or a
            name that points outside; the message names it. Errors of the code that takes the
            members stay what they are.
    """
    with path.open("rb") as file:
        yield _guarded(
            _zip(file, path) if file.peek(4).startswith(b"PK\x03\x04") else _tar(file, path), path
        )


def contents(path: Path, wanted: Callable[[PurePosixPath], bool]) -> dict[str, bytes]:
    """Return the contents of the wanted files of an archive, by their names in it; raises as
    :func:`opened`.
    """
    with opened(path) as members:
        return {name: file.read() for name, file in members if wanted(PurePosixPath(name))}


def needed(
    path: Path, names: Collection[str], optional: Collection[str] = ()
) -> dict[str, tuple[bytes, str]]:
    """Return an archive's files of these names, in whichever folders: the content of each, and
    where it is, for errors.

    Raises:
        SourceError: as :func:`opened`; or one of the ``names`` is missing.
    """
    found = contents(path, lambda member: member.name in {*names, *optional})
    files = {
        PurePosixPath(name).name: (content, f"{path}: {name}") for name, content in found.items()
    }
    if missing := {*names} - files.keys():
        raise SourceError(f"{path}: lacks {', '.join(sorted(missing))}")
    return files


def nested(file: io.BufferedReader, path: Path) -> Members:
    """Iterate over the members of ``file``, an archive that is itself a member of ``path``."""
    return _guarded(_tar(file, path), path)


@contextmanager
def _damage(path: Path) -> Iterator[None]:
    """Turn an error of reading the archive into a SourceError that names it."""
    try:
        yield
    except _DAMAGE as error:
        raise SourceError(
            f"{path}: a damaged archive ({type(error).__name__}: {error}); delete it and run the"
            " command again"
        ) from None


def _guarded(members: _Raw, path: Path) -> Members:
    with _damage(path):
        for name, file in members:
            yield name, io.BufferedReader(_Content(file, path))


class _Content(io.RawIOBase):
    """The content of a member, in pieces, so that no decompressor makes more at once than a piece
    gives.
    """

    def __init__(self, file: IO[bytes], path: Path) -> None:
        self._file, self._path = file, path

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with _damage(self._path):
            piece = self._file.read(len(buffer))
        buffer[: len(piece)] = piece
        return len(piece)


def text_of(content: bytes, where: str) -> str:
    """Return the text of a file; raises SourceError, which names ``where`` it is, if it is not
    UTF-8.
    """
    with prefixed(f"{where}: not UTF-8", UnicodeDecodeError, SourceError):
        return content.decode()


def plain_name(name: str, path: Path | str) -> str:
    """Return the name if it is a plain file name; raises SourceError if it is empty, stands for a
    folder, or has separators.
    """
    if not name or name in {".", ".."} or any(c in name for c in "/\\:\0"):
        _refuse(path, name, "as the name of a file")
    return name


def _zip(file: IO[bytes], path: Path) -> _Raw:
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            check_name(member.filename, path)
            kind = stat.S_IFMT(member.external_attr >> 16)
            if kind not in {0, stat.S_IFREG, stat.S_IFDIR}:
                _refuse(path, member.filename, "a link or a device")
            if member.flag_bits & 1:
                _refuse(path, member.filename, "encrypted")
            _check_size(member.filename, member.file_size, path)
            if not member.is_dir():
                with archive.open(member) as content:
                    yield member.filename, content


class _StrictHeader(tarfile.TarInfo):
    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        try:
            header = super().frombuf(buf, encoding, errors)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]  # the zero block that ends an archive; the stubs lack it
            raise
        except tarfile.HeaderError as error:
            raise EOFError(f"no header where one must be: {error}") from None
        if header.type == tarfile.GNUTYPE_SPARSE:
            cls._proc_gnusparse_10()
        if header.type in _NAMES and not 0 <= header.size <= _LARGEST_NAME:
            raise tarfile.ReadError(f"it holds a name of {header.size:,} bytes")
        return header

    @staticmethod
    def _proc_gnusparse_10(*_: object) -> NoReturn:
        """Called by tarfile where a further header says so: refuse the file before a map of any
        length is read into memory.
        """
        raise tarfile.ReadError("it holds a sparse file")


def _tar(file: io.BufferedReader, path: Path) -> _Raw:
    with gzip.open(file) if file.peek(2).startswith(b"\x1f\x8b") else nullcontext(file) as raw:
        with tarfile.open(fileobj=raw, mode="r|", tarinfo=_StrictHeader) as archive:
            for member in archive:
                check_name(member.name, path)
                if member.issparse():
                    _refuse(path, member.name, "a sparse file")
                _check_size(member.name, member.size, path)
                if member.isreg():
                    content = archive.extractfile(member)
                    assert content  # as of every regular file
                    yield member.name, content
                elif not member.isdir():
                    _refuse(path, member.name, "a link or a device")
        while raw.read(1 << 20):  # gzip's checksum stands at its very end
            pass


def check_name(name: str, path: Path) -> None:
    """Raise SourceError if a name in an archive, or in a list, points outside; the message names
    it.
    """
    pure = PurePosixPath(name)
    if (
        pure.is_absolute()
        or ".." in pure.parts
        or "\\" in name
        or ":" in (pure.parts or ("",))[0]
        or "\0" in name
    ):
        _refuse(path, name, "a name that leaves its folder")


def _check_size(name: str, size: int, path: Path) -> None:
    if not 0 <= size <= LARGEST:
        _refuse(path, name, f"of {size:,} bytes, where a data set's file has at most {LARGEST:,}")


def _refuse(path: Path | str, name: str, why: str) -> NoReturn:
    raise SourceError(f"{path}: refused: it holds {name!r}, {why}")
