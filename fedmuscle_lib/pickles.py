"""The one unpickler of the project: it knows numpy arrays and builtin containers only, so that no file is ever executed."""

from __future__ import annotations

import io
import pickle
from pathlib import Path


class DataError(ValueError):
    """A data file is missing, damaged or not what its place in the layout says; the message names it."""


_HARMLESS = {
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy.core.multiarray", "scalar"),
    ("numpy._core.multiarray", "scalar"),
    ("numpy._core.numeric", "_frombuffer"),
    ("numpy.core.numeric", "_frombuffer"),
    ("_codecs", "encode"),
}


class _ArrayUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> object:
        if (module, name) not in _HARMLESS:
            raise DataError(f"it asks for {module}.{name}; only numpy arrays and builtin containers are read")
        return super().find_class(module, name)


def load_pickle(path: Path) -> dict:
    """A dict of arrays, lists, numbers and strings.

    Raises:
        DataError: the file is missing or truncated, holds no dict, or would run code.
    """
    return parse_pickle(read_bytes(path), str(path))


def parse_pickle(pickled: bytes, name: str) -> dict:
    """What :func:`load_pickle` returns, of bytes; Python 2's byte strings are read as latin1.

    Raises:
        DataError: naming ``name``; the pickle is truncated, holds no dict, or would run code.
    """
    try:
        content = _ArrayUnpickler(io.BytesIO(pickled), encoding="latin1").load()
    except DataError as error:
        raise DataError(f"{name}: refused: {error}") from None
    except Exception as error:  # a damaged pickle can raise almost anything
        raise DataError(f"{name}: not a readable pickle ({type(error).__name__}: {error})") from None
    if not isinstance(content, dict):
        raise DataError(f"{name}: holds a {type(content).__name__}, not a dict")
    return content


def read_bytes(path: Path) -> bytes:
    """A file's content.

    Raises:
        DataError: naming the file; it is missing or can't be read.
    """
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; `python -m data_prep` makes the data sets") from None
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}") from None
