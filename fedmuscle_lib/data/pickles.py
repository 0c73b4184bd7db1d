"""The one reader of pickles: numpy's arrays and builtin containers; it runs no code.

A pickle names the functions that make what it holds. Python looks each name up with ``find_class``,
and only the names by which numpy writes arrays are found here.
"""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np

from fedmuscle_lib.core.errors import DataError, line_of, prefixed, unreadable
from fedmuscle_lib.core.files import read_bytes


def load_pickle(path: Path) -> dict:
    """A dict of arrays, lists, numbers and strings.

    Raises:
        DataError: the file is missing or truncated, holds no dict, or would run code.
    """
    return parse_pickle(read_bytes(path), str(path))


def parse_pickle(pickled: bytes, name: str) -> dict:
    """Return what :func:`load_pickle` returns, of bytes; Python 2's byte strings are read as
    latin1.

    Raises:
        DataError: naming ``name``; the pickle is truncated, holds no dict, or would run code.
    """
    with (
        unreadable(f"{name}: not a readable pickle", but=(DataError,)),
        prefixed(f"{name}: refused", DataError),
    ):
        content = _Unpickler(io.BytesIO(pickled), encoding="latin1").load()
    if not isinstance(content, dict):
        raise DataError(f"{name}: holds a {type(content).__name__}, not a dict")
    return content


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        module = module.replace("numpy.core", "numpy._core")  # before and since numpy 2
        if f"{module}.{name}" in _STAND_INS:
            return _STAND_INS[f"{module}.{name}"]
        if f"{module}.{name}" in _NUMPYS:
            return super().find_class(module, name)
        raise DataError(
            f"it asks for {line_of(f'{module}.{name}', 80)}; only numpy arrays and builtin"
            " containers are read"
        )


def _dtype(name: str, *options: object) -> np.dtype:
    dtype = np.dtype(name, copy=True)  # whose byte order the pickle sets next
    if dtype.kind not in "biufcSU":
        raise DataError(f"it holds an array of {dtype}; only numbers and texts are read")
    return dtype


def _encode(text: str, encoding: str) -> bytes:
    """How old protocols write bytes; another codec would be imported by its name."""
    if encoding != "latin1":
        raise DataError(f"it asks for the encoding {line_of(encoding, 80)}; only latin1 is read")
    return text.encode("latin1")


_STAND_INS = {
    "numpy.dtype": _dtype,
    "_codecs.encode": _encode,
    "__builtin__.bytes": bytes,  # how old protocols write b""
}
_NUMPYS = {
    "numpy.ndarray",
    "numpy._core.multiarray._reconstruct",
    "numpy._core.multiarray.scalar",
    "numpy._core.numeric._frombuffer",
}
