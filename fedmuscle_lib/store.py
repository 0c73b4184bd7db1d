"""Results on disk, addressed by everything they depend on; shared by notebooks and processes, and safe against a kill at any point.

A run's address is a hash of its settings, of the data and checkpoints that it reads, and of the library's own source. A folder
becomes a result by its last file, ``provenance.json``, which is moved into place when the others are complete.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from filelock import FileLock, Timeout

_REPORTING = {"report.py", "plots.py", "bench.py", "reproduce.py", "__main__.py"}  # these read results and don't make them


class Busy(RuntimeError):
    """Another process is computing this run."""


@lru_cache(maxsize=1)
def source_digest() -> str:
    """A hash of every module of the library that a result can depend on."""
    package = Path(__file__).parent
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        if path.name not in _REPORTING:
            digest.update(path.relative_to(package).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()


def files_digest(paths: Iterable[Path], root: Path) -> str:
    """A hash of names and sizes, and of the content of files up to a megabyte."""
    digest = hashlib.sha256()
    for path in sorted(paths):
        size = path.stat().st_size
        digest.update(f"{os.path.relpath(path, root)} {size}\n".encode())
        if size <= 1 << 20:
            digest.update(path.read_bytes())
    return digest.hexdigest()


@dataclass(frozen=True)
class Entry:
    """One run's place in the store."""

    folder: Path

    @property
    def done(self) -> bool:
        return (self.folder / "provenance.json").exists()

    @contextmanager
    def lock(self, wait: bool = True) -> Iterator[None]:
        """Hold the run for this process; the operating system releases it if the process dies.

        Raises:
            Busy: ``wait`` is false and another process holds it.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        held = FileLock(str(self.folder / "lock"))
        try:
            held.acquire(timeout=-1 if wait else 0)
        except Timeout:
            raise Busy(str(self.folder)) from None
        try:
            yield
        finally:
            held.release()

    def save(self, tables: dict[str, pd.DataFrame], provenance: dict[str, Any]) -> None:
        """Write a finished run; afterwards it is :attr:`done` and has no checkpoint."""
        for name, table in tables.items():
            self._write(f"{name}.csv", table.to_csv(index=False).encode())
        self._write("provenance.json", json.dumps(provenance, indent=2).encode())
        (self.folder / "checkpoint.pt").unlink(missing_ok=True)

    def load(self, *names: str) -> tuple[dict[str, pd.DataFrame], dict[str, Any]]:
        """What :meth:`save` wrote."""
        tables = {name: pd.read_csv(self.folder / f"{name}.csv") for name in names}
        return tables, json.loads((self.folder / "provenance.json").read_text())

    def save_checkpoint(self, state: dict[str, Any]) -> None:
        with self._replacing("checkpoint.pt") as path:
            torch.save(state, path)

    def load_checkpoint(self) -> dict[str, Any] | None:
        """The last whole checkpoint, or None. Nothing but tensors and plain containers is read."""
        path = self.folder / "checkpoint.pt"
        return torch.load(path, weights_only=True) if path.exists() else None

    def _write(self, name: str, content: bytes) -> None:
        with self._replacing(name) as path:
            path.write_bytes(content)

    @contextmanager
    def _replacing(self, name: str) -> Iterator[Path]:
        """A path whose file takes the place of ``name`` at once when it is complete."""
        handle, scratch = tempfile.mkstemp(dir=self.folder, prefix=f".{name}-")
        os.close(handle)
        try:
            yield Path(scratch)
            os.replace(scratch, self.folder / name)
        finally:
            Path(scratch).unlink(missing_ok=True)


@dataclass(frozen=True)
class Store:
    """A folder of runs."""

    root: Path

    def entry(self, **parts: Any) -> Entry:
        """The place of the run that ``parts`` (JSON values) and the library's source determine."""
        text = json.dumps(parts | {"source": source_digest()}, sort_keys=True)
        return Entry(self.root / hashlib.sha256(text.encode()).hexdigest()[:24])
