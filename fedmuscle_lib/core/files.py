"""Bytes and JSON from files, and files written whole. An error is one line that names the file."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from safetensors import SafetensorError

from fedmuscle_lib.core.errors import DataError, NoFile, line_of

ROOT = Path(__file__).resolve().parents[2]  # the clone, also where a link leads to the library
MANIFEST = "manifest.json"  # in a folder that `data_prep` wrote
# of a file; the test set of a user with Food-101, the largest that `data_prep` writes, has 0.3 GB
MOST_BYTES = 1 << 32
_MOST_JSON = 1 << 28  # bytes


def user_path(text: str | Path, name: str = "") -> Path:
    """The path that a person wrote; ``~`` is the home folder, as in a shell.

    Args:
        name: of the option, argument or variable of the environment, with which an error begins.

    Raises:
        ValueError: an empty text, which would be the current folder, or a ``~name`` without a home
            folder.
    """
    named = f"{name}: " if name else ""
    if not str(text):
        raise ValueError(f"{named}the path is empty; the current folder is .")
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise ValueError(f"{named}{str(text)!r}: there is no such home folder") from None


def python_path() -> str:
    """PYTHONPATH of a child process, in which this library stands before another one that is
    installed.
    """
    return os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))


def read_bytes(path: Path, most: int = MOST_BYTES) -> bytes:
    """The content of a file of at most ``most`` bytes.

    Raises:
        NoFile: naming the file; it is missing.
        DataError: naming the file; it is larger, or can't be read.
    """
    with opened(path, most) as file:
        return file.read()


@contextmanager
def opened(path: Path, most: int = MOST_BYTES) -> Iterator[BinaryIO]:
    """A file of at most ``most`` bytes, open for reading.

    Raises:
        NoFile, DataError: as :func:`read_bytes`, also for what can't be read inside.
    """
    if path.is_fifo():  # it would be waited for
        raise DataError(f"{path}: a pipe or a device, not a file")
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size > most:
                raise DataError(f"{path}: larger than {most:,} bytes")
            yield file
    except FileNotFoundError:
        raise NoFile(f"{path}: no such file") from None
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or error}") from None


Stamp = tuple[int, int, int, int]


def stamp_of(path: str | Path) -> Stamp | None:
    """Return what changes when the content of a regular file does: size, times of its content and
    of its entry, number of the latter.

    The time of the content alone can be set, and is by whoever copies a file with its times. None
    for what is no file, or leads nowhere.
    """
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return (
        (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
        if stat.S_ISREG(status.st_mode)
        else None
    )


def digest(path: Path, algorithm: str = "sha256") -> str:
    """Hexadecimal digest of a file by an algorithm of ``hashlib``."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def read_json(path: Path) -> dict[str, Any]:
    """The object that a JSON file holds.

    Raises:
        NoFile: naming the file; it is missing.
        DataError: naming the file; it can't be read, is not JSON, or holds something else than an
            object.
    """
    return parse_json(read_bytes(path, _MOST_JSON), str(path))


def parse_json(content: bytes, name: str) -> dict[str, Any]:
    """Return what :func:`read_json` returns, of bytes; raises DataError, which begins with
    ``name``.
    """
    found = parse_any(content, name)
    if not isinstance(found, dict):
        raise DataError(f"{name}: holds a {type(found).__name__}, not an object")
    return found


def parse_any(content: bytes, name: str) -> Any:
    """Any JSON value; raises DataError, which begins with ``name``, if it is not JSON, or too
    deep.
    """
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{name}: not JSON ({line_of(str(error))})") from None


def write(path: Path, text: str) -> None:
    """Put ``text`` in the place of ``path`` at once, when it is complete; raises as :func:`put`."""
    put(path, text.encode("utf8"))


def put(path: Path, content: bytes) -> None:
    """Put ``content`` in the place of ``path`` at once, when it is complete, and make its folder;
    two writers don't disturb each other.

    Raises:
        OSError: naming ``path``; a link in its place is left alone.
    """
    if path.is_symlink():
        raise FileExistsError(errno.EEXIST, "a link, which is left alone; move it away", str(path))
    scratch = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch.write_bytes(content)
        os.replace(scratch, path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        scratch.unlink(missing_ok=True)


def reserve(path: Path, size: int) -> None:
    """Make a file of ``size`` bytes, or give one room for its holes: a disk that gets full would
    end the process that writes into a hole.

    Raises:
        OSError: there is no room.
    """
    with path.open("ab") as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Name ``path`` in errors from inside: a full disk's error has no file name, and safetensors'
    error is no OSError.

    Raises:
        OSError: names the file.
    """
    try:
        yield
    except SafetensorError as error:
        raise OSError(f"{path}: {error}") from None
    except OSError as error:
        if error.filename is not None:
            raise
        raise OSError(f"{path}: {error.strerror or error}") from None
