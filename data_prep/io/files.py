"""Reading and writing with errors that name the file."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from data_prep.io.entry import SourceError
from fedmuscle_lib.core.files import named


def put(path: Path, content: bytes) -> None:
    """Write a file, and make its folder; raises OSError with the file's name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with named(path):
        path.write_bytes(content)


@contextmanager
def alone(command: str, folder: Path) -> Iterator[None]:
    """Allow one run of a command at a time in ``folder``, and remove the temporary folders, ``.<command>-*``, of killed runs.

    Raises:
        SourceError: another run is at work there.
    """
    try:
        with FileLock(folder / f".{command}.lock", timeout=0):
            for scratch in folder.glob(f".{command}-*"):
                shutil.rmtree(scratch)
            yield
    except Timeout:
        raise SourceError(f"{folder}: another `data_prep {command}` is at work here") from None
