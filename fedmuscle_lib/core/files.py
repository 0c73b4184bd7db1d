"""Bytes and JSON from files, and files written whole. An error is one line that names the file."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from pathlib import Path
from typing import Any

from fedmuscle_lib.core.errors import DataError, NoFile, line_of

SOURCE = Path(__file__).resolve().parents[2]  # the clone, also where a link leads to the library
# What data, results and figures lie below: the clone; for an installed package the current folder,
# or that of the command which started this process elsewhere.
ROOT = SOURCE
if not (SOURCE / "notebooks").is_dir():
    ROOT = Path(os.environ.get("FEDMUSCLE_ROOT") or Path.cwd())
Json = dict[str, Any]  # a JSON object
MANIFEST = "manifest.json"  # in a folder that `data_prep` wrote


def user_path(text: str | Path, name: str = "") -> Path:
    """The path that a person wrote; ``~`` is the home folder, as in a shell.

    Args:
        name: of the option, argument or variable of the environment, with which an error begins.

    Raises:
        ValueError: an empty text, which would be the current folder.
    """
    if not str(text):
        raise ValueError(f"{name}: the path is empty; the current folder is .".removeprefix(": "))
    return Path(text).expanduser()


def python_path() -> str:
    """PYTHONPATH of a child process, in which this library stands before another one that is
    installed.
    """
    return os.pathsep.join(filter(None, (str(SOURCE), os.environ.get("PYTHONPATH"))))


def read_bytes(path: Path) -> bytes:
    """The content of a file.

    Raises:
        NoFile: naming the file; it is missing.
        DataError: naming the file; it can't be read.
    """
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise NoFile(f"{path}: no such file") from None
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}") from None


Stamp = tuple[int, int, int, int]


def stamp_of(path: str | Path) -> Stamp | None:
    """Return what changes when the content of a file does: size, times of its content and of its
    entry, number of the latter; None for what is missing.

    The time of the content alone can be set, and is by whoever copies a file with its times.
    """
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def digest(path: Path, algorithm: str = "sha256") -> str:
    """Hexadecimal digest of a file by an algorithm of ``hashlib``."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def read_json(path: Path) -> Json:
    """The object that a JSON file holds.

    Raises:
        NoFile: naming the file; it is missing.
        DataError: naming the file; it can't be read, is not JSON, or holds something else than an
            object.
    """
    return parse_json(read_bytes(path), str(path))


def parse_json(content: bytes, name: str, kind: type = dict) -> Any:
    """Return what :func:`read_json` returns, of bytes, or a list; raises DataError, which begins
    with ``name``.
    """
    try:
        found = json.loads(content)
    except ValueError as error:
        raise DataError(f"{name}: not JSON ({line_of(str(error))})") from None
    if not isinstance(found, kind):
        raise DataError(f"{name}: holds a {type(found).__name__}, not a {kind.__name__}")
    return found


def write(path: Path, text: str) -> None:
    """Put ``text`` in the place of ``path`` at once, when it is complete; raises as :func:`put`."""
    put(path, text.encode("utf8"))


def put(path: Path, content: bytes) -> None:
    """Put ``content`` in the place of ``path`` at once, when it is complete, and make its folder;
    two writers don't disturb each other.

    Raises:
        OSError: naming ``path``.
    """
    scratch = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch.write_bytes(content)
        os.replace(scratch, path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        scratch.unlink(missing_ok=True)
