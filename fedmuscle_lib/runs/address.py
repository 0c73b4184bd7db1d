"""A run's address: everything that it depends on, and nothing else.

An address has two parts. The first is what was asked for, in the system's words: the settings that
the run looks at, and the versions of the arithmetic (``fedmuscle_lib.core.versions``). The second
is what was there: the content of data and checkpoints, and torch.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from fedmuscle_lib.core.files import MANIFEST, Stamp, digest, stamp_of
from fedmuscle_lib.runs.settings import RunSettings
from fedmuscle_lib.runs.system import system_of


@dataclass(frozen=True)
class Address:
    """The address of a stored run.

    Attributes:
        key: hash of what was asked for.
        inputs: by name, a hash of each thing that the run reads from disk; empty for what is not
            there.
        torch: its version.
    """

    key: str
    inputs: tuple[tuple[str, str], ...]
    torch: str

    def __str__(self) -> str:
        return f"{self.key}-{hash_of([self.inputs, self.torch])[:8]}"


def address_of(settings: RunSettings) -> Address:
    """The run's address here and now.

    Raises:
        ValueError: the algorithm is defined in no file.
        FileNotFoundError: a place that the settings name, and not their profile, is not there. A
            shipped run does not stand in for it.
    """
    for name in sorted(settings.places()):
        path = getattr(settings, name)
        default = type(settings).model_fields[name].default
        usual = settings.profiles[settings.profile].get(name, default)
        if path is not None and path != usual and not path.exists():
            raise FileNotFoundError(f"{name}: {path}: no such folder")
    return Address(
        question_of(settings),
        tuple(sorted(system_of(settings).inputs(settings).items())),
        torch.__version__,
    )


def question_of(settings: RunSettings) -> str:
    """The run's ``Address.key``, which is known without a look at any file."""
    return hash_of(system_of(settings).key(settings))[:16]


_looked: ContextVar[dict[tuple[Path, str, bool], str]] = ContextVar("looked")


@contextmanager
def cached_digests() -> Iterator[None]:
    """Look at each folder once inside, however many runs read it: a folder of images takes a tenth
    of a second.
    """
    token = _looked.set({})
    try:
        yield
    finally:
        _looked.reset(token)


def files_digest(folder: Path, pattern: str = "*", deep: bool = True) -> str:
    """A hash of names and content of the files of ``folder`` whose name fits the pattern; empty if
    there is none.

    Links are followed. A file is read again only when what the file system says of it has changed.
    Manifests of data sets are left out: they say how the files were made, and the files say what
    they are.

    Args:
        deep: whether files of folders below count too.
    """
    looked, asked = _looked.get({}), (folder, pattern, deep)
    if asked in looked:
        return looked[asked]
    kept = tuple(
        sorted(
            (path, stamp)
            for place, _, names in islice(os.walk(folder, followlinks=True), None if deep else 1)
            for name in names
            if fnmatch(name, pattern)
            and name != MANIFEST
            and (stamp := stamp_of(path := f"{place}/{name}"))  # else a link that leads nowhere
        )
    )
    looked[asked] = _content_digest(str(folder), kept) if kept else ""
    return looked[asked]


@lru_cache(maxsize=64)
def _content_digest(folder: str, files: tuple[tuple[str, Stamp], ...]) -> str:
    content = hashlib.sha256()
    for path, (size, *_) in files:
        # a name may be no UTF-8
        content.update(os.fsencode(f"{path.removeprefix(folder)} {size}\n"))
        content.update(bytes.fromhex(digest(Path(path))))
    return content.hexdigest()


def hash_of(value: Any) -> str:
    """SHA-256 of a JSON value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
