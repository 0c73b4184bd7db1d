"""Results on disk, addressed by everything they depend on; shared by notebooks and processes, and safe against a kill at any point.

A run's address is a hash of its settings, of the data and checkpoints that it reads, and of the library's own source. A folder
becomes a result by its last file, ``provenance.json``, which is moved into place when the others are complete.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from filelock import FileLock, Timeout

_REPORTING = {"pool.py", "report.py", "plots.py", "bench.py", "reproduce.py", "__main__.py"}  # these ask for results and don't make them


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


def files_digest(folder: Path, pattern: str = "**/*") -> str:
    """A hash of the names below ``folder`` and of the files' content; a file is read again only when its size or time has changed.

    Manifests of data sets are left out: they say how the files were made, and the files say what they are.
    """
    paths = sorted(path for path in folder.glob(pattern) if path.is_file() and path.name != "manifest.json")
    stats = [path.stat() for path in paths]
    return _content_digest(folder, tuple((path, s.st_size, s.st_mtime_ns) for path, s in zip(paths, stats, strict=True)))


@lru_cache(maxsize=64)
def _content_digest(folder: Path, files: tuple[tuple[Path, int, int], ...]) -> str:
    digest = hashlib.sha256()
    for path, size, _ in files:
        digest.update(f"{path.relative_to(folder).as_posix()} {size}\n".encode())
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
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
            for left in self.folder.glob(".*-*"):  # by a process that was killed while writing
                left.unlink()
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
        buffer = io.BytesIO()
        torch.save(state, buffer)  # torch's own writer reports a full disk as a RuntimeError
        self._write("checkpoint.pt", buffer.getvalue())

    def load_checkpoint(self) -> dict[str, Any] | None:
        """The last whole checkpoint, or None. Nothing but tensors and plain containers is read."""
        path = self.folder / "checkpoint.pt"
        return torch.load(path, weights_only=True, map_location="cpu") if path.exists() else None

    def _write(self, name: str, content: bytes) -> None:
        """Put ``content`` in the place of ``name`` at once, when it is complete."""
        handle, scratch = tempfile.mkstemp(dir=self.folder, prefix=f".{name}-")
        os.close(handle)
        try:
            Path(scratch).write_bytes(content)
            os.replace(scratch, self.folder / name)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self.folder / name)) from None
        finally:
            Path(scratch).unlink(missing_ok=True)


@dataclass(frozen=True)
class Store:
    """A folder of runs."""

    root: Path

    def entry(self, **parts: Any) -> Entry:
        """The place of the run that ``parts`` (JSON values), the library's source and torch determine."""
        text = json.dumps(parts | {"source": source_digest(), "torch": torch.__version__}, sort_keys=True)
        return Entry(self.root / hashlib.sha256(text.encode()).hexdigest()[:24])
