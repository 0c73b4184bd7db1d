"""Reads JSON files, such as manifests and provenances, and writes files whole. An error is one line that names the file."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from fedmuscle_lib.pickles import DataError, line_of, read_bytes

_MOST = 1 << 28  # bytes


def read_json(path: Path) -> dict[str, Any]:
    """The object that a JSON file holds.

    Raises:
        NoFile: naming the file; it is missing.
        DataError: naming the file; it can't be read, is not JSON, or holds something else than an object.
    """
    return parse_json(read_bytes(path, _MOST), str(path))


def parse_json(content: bytes, name: str) -> dict[str, Any]:
    """What :func:`read_json` returns, of bytes.

    Raises:
        DataError: naming ``name``.
    """
    found = parse_any(content, name)
    if not isinstance(found, dict):
        raise DataError(f"{name}: holds a {type(found).__name__}, not an object")
    return found


def parse_any(content: bytes, name: str) -> Any:
    """Any JSON value.

    Raises:
        DataError: naming ``name``; it is not JSON, or values in each other are too many.
    """
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{name}: not JSON ({line_of(str(error))})") from None


def write(path: Path, text: str) -> None:
    """Put ``text`` in the place of ``path`` at once, when it is complete; raises as :func:`put`."""
    put(path, text.encode("utf8"))


def put(path: Path, content: bytes) -> None:
    """Put ``content`` in the place of ``path`` at once, when it is complete; two writers don't disturb each other.

    Raises:
        OSError: naming ``path``.
    """
    scratch = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
    try:
        scratch.write_bytes(content)
        os.replace(scratch, path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        scratch.unlink(missing_ok=True)


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Name ``path`` in errors from inside: a full disk's error has no file name, and safetensors' error is no OSError.

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
