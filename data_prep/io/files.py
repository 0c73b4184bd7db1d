"""Errors of reading and writing that say which file they are about."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError


@contextmanager
def named(path: Path) -> Iterator[None]:
    """What goes wrong inside is ``path``'s: a full disk's error has no file name of its own, and numpy's and safetensors' no kind.

    Raises:
        OSError: with the name of the file.
    """
    try:
        yield
    except SafetensorError as error:
        raise OSError(f"{path}: {error}") from None
    except OSError as error:
        if error.filename is not None:
            raise
        raise OSError(f"{path}: {error.strerror or error}") from None


def put(path: Path, content: bytes) -> None:
    """Write a file, and the folder that it lies in; raises OSError with its name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with named(path):
        path.write_bytes(content)
