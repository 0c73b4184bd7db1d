"""Reads JSON files, such as manifests and provenances, and writes files whole. An error is one line that names the file."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

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
    """Put ``text`` in the place of ``path`` at once, when it is complete."""
    scratch = path.with_name(f".{path.name}")
    try:
        scratch.write_text(text, encoding="utf8")
        os.replace(scratch, path)
    finally:
        scratch.unlink(missing_ok=True)
