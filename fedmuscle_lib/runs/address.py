"""A run's address: everything that it depends on, and nothing else.

An address has two parts. The first is what was asked for, in the system's words: the settings that the run looks at, and the versions of
the arithmetic (``fedmuscle_lib.versions``). The second is what was there: the content of data and checkpoints, and torch.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from fedmuscle_lib.runs.system import RunSettings, system_of


@dataclass(frozen=True)
class Address:
    """Where a run is stored.

    Attributes:
        asked: hash of what was asked for.
        inputs: by name, a hash of each thing that the run reads from disk; empty for what is not there.
        torch: its version.
    """

    asked: str
    inputs: tuple[tuple[str, str], ...]
    torch: str

    def __str__(self) -> str:
        return f"{self.asked}-{hash_of([self.inputs, self.torch])[:8]}"


def address_of(settings: RunSettings) -> Address:
    """The run's address here and now.

    Raises:
        ValueError: the algorithm is defined in no file.
    """
    return Address(question_of(settings), tuple(sorted(system_of(settings).inputs(settings).items())), torch.__version__)


def question_of(settings: RunSettings) -> str:
    """The run's ``Address.asked``, which is known without a look at any file."""
    return hash_of(system_of(settings).asked(settings))[:16]


def files_digest(folder: Path, pattern: str = "*", deep: bool = True) -> str:
    """A hash of names and content of the files of ``folder`` whose name fits the pattern; empty if there is none.

    Links are followed. A file is read again only when its size or time has changed. Manifests of data sets are left out: they say how
    the files were made, and the files say what they are.

    Args:
        deep: whether files of folders below count too.
    """
    found = _files(str(folder), deep)
    kept = sorted(file for file in found if fnmatch(name := os.path.basename(file[0]), pattern) and name != "manifest.json")
    return _content_digest(str(folder), tuple(kept)) if kept else ""


def _files(folder: str, deep: bool) -> Iterator[tuple[str, int, int]]:
    """Path, size and time of each file."""
    seen: set[str] = set()
    for place, folders, names in os.walk(folder, followlinks=True):
        real = os.path.realpath(place)
        if not deep or real in seen:  # the second is a link back to where it came from
            folders.clear()
        if real in seen:
            continue
        seen.add(real)
        for name in names:
            path = f"{place}/{name}"
            if stat.S_ISREG((status := os.stat(path)).st_mode):
                yield path, status.st_size, status.st_mtime_ns


@lru_cache(maxsize=64)
def _content_digest(folder: str, files: tuple[tuple[str, int, int], ...]) -> str:
    digest = hashlib.sha256()
    for path, size, _ in files:
        digest.update(f"{path.removeprefix(folder)} {size}\n".encode())
        with open(path, "rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def hash_of(value: Any) -> str:
    """SHA-256 of a JSON value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
