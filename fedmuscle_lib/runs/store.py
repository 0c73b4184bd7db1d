"""Runs on disk: a writable store, and below it the runs that came with the repository, which are only read.

A finished run is one file, ``run.zip``: its tables as CSV, its provenance, and their checksums. It is moved into place when it is whole,
so that a kill at any point leaves a whole run or none. While a run is computed its checkpoint and lock lie beside it.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from filelock import FileLock, Timeout

from fedmuscle_lib.profiles import ROOT
from fedmuscle_lib.runs.address import Address
from fedmuscle_lib.runs.system import FIRST, named

RUN, CHECKPOINT, SUMS = "run.zip", "checkpoint.pt", "SHA256SUMS"
_EPOCH = (1980, 1, 1, 0, 0, 0)  # of files in a zip, so that equal runs are equal files
_log = logging.getLogger("fedmuscle")


class Busy(RuntimeError):
    """Another process is computing this run."""


class Damaged(ValueError):
    """A stored file is not what was written; the message names it."""


@dataclass(frozen=True)
class Record:
    """A finished run as it is stored: ``History`` without its settings."""

    tables: dict[str, pd.DataFrame]
    provenance: dict[str, Any]

    def pack(self) -> bytes:
        """The content of the run's file."""
        members = {f"{name}.csv": table.to_csv(index=False).encode() for name, table in self.tables.items()}
        members["provenance.json"] = json.dumps(self.provenance, indent=1).encode()
        members[SUMS] = "".join(f"{_sha256(content)}  {name}\n" for name, content in members.items()).encode()
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as file:
            for name, content in members.items():
                file.writestr(zipfile.ZipInfo(name, _EPOCH), content, zipfile.ZIP_DEFLATED)
        return buffer.getvalue()

    @classmethod
    def read(cls, path: Path) -> Record:
        """What :meth:`pack` gave.

        Raises:
            Damaged: a checksum is wrong, or the file is none of ours.
        """
        try:
            with zipfile.ZipFile(path) as file:
                members = {name: file.read(name) for name in file.namelist()}
            sums = {name: digest for digest, name in (line.split("  ") for line in members.pop(SUMS).decode().splitlines())}
            if changed := [name for name in sums.keys() | members.keys() if _sha256(members.get(name, b"")) != sums.get(name)]:
                raise Damaged(f"{path}: {min(changed)} is not what was written")
            provenance = json.loads(members["provenance.json"])
            columns = named(provenance.get("system", FIRST)).tables
            return cls({name: _table(members[f"{name}.csv"], own) for name, own in columns.items()}, provenance)
        except (zipfile.BadZipFile, KeyError, ValueError, EOFError, OSError) as error:
            if isinstance(error, Damaged):
                raise
            raise Damaged(f"{path}: not a readable run ({type(error).__name__}: {error})") from None


def _table(content: bytes, columns: Sequence[str]) -> pd.DataFrame:
    table = pd.read_csv(io.BytesIO(content))
    if tuple(table.columns) != tuple(columns):
        raise ValueError(f"columns {list(table.columns)} where {list(columns)} are expected")
    return table


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@dataclass(frozen=True)
class Entry:
    """One run's place in a store.

    Attributes:
        address: of the run.
        folder: where its files are, or None for a shipped run, which is one file.
        path: the finished run's file.
    """

    address: str
    folder: Path | None
    path: Path

    @property
    def done(self) -> bool:
        """Whether the run is finished."""
        return self.path.exists()

    @property
    def shipped(self) -> bool:
        """Whether it came with the repository."""
        return self.folder is None

    @property
    def nbytes(self) -> int:
        """Size on disk, of whatever there is of the run."""
        files = [self.path] if self.folder is None else list(self.folder.iterdir())
        return sum(path.stat().st_size for path in files if path.exists())

    @property
    def finished(self) -> str | None:
        """When, in ISO format and UTC; None while it is not."""
        record = self.read()
        return record.provenance["finished"] if record else None

    def settings(self) -> dict[str, Any]:
        """What was asked for, as JSON values, also of a run in progress; empty where nothing readable says it."""
        return self._said().get("settings", {})

    def system(self) -> str:
        """The name of the run's system."""
        return self._said().get("system", FIRST)

    def _said(self) -> dict[str, Any]:
        """What the run, or its last checkpoint, says of itself."""
        if record := self.read():
            return record.provenance
        path = self.path.with_name(CHECKPOINT)
        try:
            return unpacked(path.read_bytes()) if path.exists() else {}
        except Damaged:
            return {}

    def read(self) -> Record | None:
        """The finished run; None if there is none.

        A damaged one is said to be so and set aside, or, if it is shipped, left where it is; it then counts as missing.
        """
        if not self.done:
            return None
        try:
            return Record.read(self.path)
        except Damaged as error:
            self._set_aside(self.path, str(error))
            return None

    @contextmanager
    def lock(self, wait: bool = True) -> Iterator[None]:
        """Hold the run for this process; the operating system releases it if the process dies.

        Raises:
            Busy: ``wait`` is false and another process holds it.
        """
        folder = self._own_folder()
        folder.mkdir(parents=True, exist_ok=True)
        held = FileLock(str(folder / "lock"))
        try:
            held.acquire(timeout=-1 if wait else 0)
        except Timeout:
            raise Busy(f"{folder}: another process is computing this run") from None
        try:
            for left in folder.glob(".*-*"):  # by a process that was killed while writing
                left.unlink()
            yield
        finally:
            held.release()

    def save(self, content: bytes) -> None:
        """Store a finished run, as :meth:`Record.pack` gives it; afterwards it is :attr:`done` and has no checkpoint."""
        self._write(RUN, content)
        (self._own_folder() / CHECKPOINT).unlink(missing_ok=True)

    def tidy(self) -> None:
        """Remove the checkpoint of a finished run, which a kill between the two steps of :meth:`save` leaves."""
        with suppress(OSError):  # a store that is only read
            (self._own_folder() / CHECKPOINT).unlink(missing_ok=True)

    def save_checkpoint(self, content: bytes) -> None:
        """Keep what :func:`packed` gave of a run in progress."""
        self._write(CHECKPOINT, content)

    def load_checkpoint(self) -> bytes | None:
        """The last checkpoint, if there is one."""
        path = self._own_folder() / CHECKPOINT
        return path.read_bytes() if path.exists() else None

    def discard_checkpoint(self, why: str) -> None:
        """Set a checkpoint aside that can't be gone on from, and say so."""
        self._set_aside(self._own_folder() / CHECKPOINT, why)

    def delete(self) -> None:
        """Remove the run and what was kept of it.

        Raises:
            Busy: a process is computing it.
        """
        with self.lock(wait=False):
            shutil.rmtree(self._own_folder())

    def _own_folder(self) -> Path:
        if self.folder is None:
            raise PermissionError(f"{self.path}: a shipped run is only read")
        return self.folder

    def _set_aside(self, path: Path, why: str) -> None:
        _log.warning("%s; the run is computed again", why)
        if self.folder is not None and path.exists():
            os.replace(path, path.with_name(f"{path.name}.damaged"))

    def _write(self, name: str, content: bytes) -> None:
        """Put ``content`` in the place of ``name`` at once, when it is complete."""
        folder = self._own_folder()
        handle, scratch = tempfile.mkstemp(dir=folder, prefix=f".{name}-")
        os.close(handle)
        try:
            Path(scratch).write_bytes(content)
            os.replace(scratch, folder / name)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(folder / name)) from None
        finally:
            Path(scratch).unlink(missing_ok=True)


def packed(state: dict[str, Any]) -> bytes:
    """A checkpoint's content."""
    buffer = io.BytesIO()
    torch.save(state, buffer)  # torch's own writer reports a full disk as a RuntimeError
    return buffer.getvalue()


def unpacked(content: bytes) -> dict[str, Any]:
    """What :func:`packed` got. Nothing but tensors and plain containers is read.

    Raises:
        Damaged: it is truncated, or none.
    """
    try:
        return torch.load(io.BytesIO(content), weights_only=True, map_location="cpu")
    except Exception as error:  # zip, pickle and torch have kinds of their own
        raise Damaged(f"not a readable checkpoint ({type(error).__name__}: {str(error).strip()[:100]})") from None


@dataclass(frozen=True)
class Store:
    """Where runs are kept.

    Attributes:
        root: folder that computed runs are written to.
        shipped: folders of runs that are only read.
    """

    root: Path
    shipped: tuple[Path, ...] = ()

    def entry(self, address: Address | str) -> Entry:
        """The run's place in the writable folder."""
        folder = self.root / str(address)
        return Entry(str(address), folder, folder / RUN)

    def find(self, address: Address) -> tuple[Record, Entry, tuple[str, ...]] | None:
        """The finished run, where it was found, and what differs between here and where it was computed; None if there is none.

        A shipped run of the same question is found where the data or the checkpoints that it read are absent here, or torch is another:
        it could not be computed here, or not to the bit. Where they are here and differ, it is another run.
        """
        entry = self.entry(address)
        if record := entry.read():
            entry.tidy()
            return record, entry, ()
        candidates = [entry for entry in self._shipped(f"{address.asked}-*.zip")]
        candidates.sort(key=lambda entry: entry.address != str(address))  # the very same first
        for entry in candidates:
            if record := entry.read():
                caveats = _differences(record.provenance, address)
                if caveats is not None:
                    return record, entry, caveats
        return None

    def entries(self) -> Iterator[Entry]:
        """All there is: computed, interrupted and shipped."""
        if self.root.is_dir():
            yield from (self.entry(folder.name) for folder in sorted(self.root.iterdir()) if folder.is_dir())
        yield from self._shipped("*.zip")

    def ship(self, address: str, folder: Path) -> Path:
        """Copy a finished run into a folder of shipped ones.

        Raises:
            FileNotFoundError: there is no such run, or it is not finished.
            Damaged: it is not what was written.
        """
        entry = self.entry(address)
        if not entry.done:
            raise FileNotFoundError(f"{entry.path}: no finished run")
        Record.read(entry.path)
        folder.mkdir(parents=True, exist_ok=True)
        path, part = folder / f"{address}.zip", folder / f".{address}.part"
        try:
            shutil.copyfile(entry.path, part)
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)
        return path

    def _shipped(self, pattern: str) -> Iterator[Entry]:
        for folder in self.shipped:
            yield from (Entry(path.stem, None, path) for path in sorted(folder.glob(pattern)))


def _differences(provenance: dict[str, Any], here: Address) -> tuple[str, ...] | None:
    """Sentences; None if something that the run read is here and differs."""
    there, ours = provenance["inputs"], dict(here.inputs)
    if any(ours.get(name) and ours[name] != digest for name, digest in there.items()):
        return None
    absent = dict.fromkeys(name.partition("/")[0] for name, digest in there.items() if digest and not ours.get(name))
    caveats = [f"{name} is not here, or not all of it" for name in absent]
    if provenance["torch"] != here.torch:
        caveats.append(f"torch {provenance['torch']} there, {here.torch} here")
    return tuple(caveats)


def default_store() -> Store:
    """``results/runs`` of the clone, or FEDMUSCLE_RUNS; below it the shipped runs, unless FEDMUSCLE_SHIPPED is 0."""
    shipped = () if os.environ.get("FEDMUSCLE_SHIPPED") == "0" else tuple(sorted(ROOT.glob("figures/*/runs")))
    return Store(Path(os.environ.get("FEDMUSCLE_RUNS") or ROOT / "results/runs"), shipped)
