"""Reading and writing with errors that name the file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError


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


def put(path: Path, content: bytes) -> None:
    """Write a file, and make its folder; raises OSError with the file's name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with named(path):
        path.write_bytes(content)
