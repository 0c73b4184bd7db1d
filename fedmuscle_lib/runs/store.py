"""Runs on disk: a writable store, and below it the runs that came with the repository, which are
only read.

A finished run is one file, ``run.zip``: its tables as CSV and its provenance. Files are replaced at
once, so that a kill at any point leaves a whole run or none. While a run is computed its checkpoint
and lock lie beside it. A file that can't be read is renamed with a warning, and the run is computed
again. A profile's shipped runs lie in one archive.
"""

from __future__ import annotations

import io
import json
import logging
import os
import zipfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from filelock import FileLock, Timeout

from fedmuscle_lib.core import files
from fedmuscle_lib.core.errors import line_of, out_of_memory, unreadable
from fedmuscle_lib.core.files import ROOT, user_path
from fedmuscle_lib.runs.address import SPELT, Address
from fedmuscle_lib.runs.archive import ARCHIVE, archive, unzipped, write_archive, zipped
from fedmuscle_lib.runs.system import named

RUN, CHECKPOINT, _LOCK = "run.zip", "checkpoint.pt", "lock"
_OWN = [_LOCK] + [  # all that lies in a run's folder, and what a kill may leave there
    form.format(name) for name in (RUN, CHECKPOINT) for form in ("{}", "{}.damaged*", ".{}-*")
]
_UNNAMED = "fedmuscle"  # the system of stored runs that name none: there was no other
_log = logging.getLogger("fedmuscle")


class Busy(RuntimeError):
    """Another process is computing this run."""


@dataclass(frozen=True)
class Record:
    """A finished run as it is stored: ``History`` without its settings."""

    tables: dict[str, pd.DataFrame]
    provenance: dict[str, Any]

    def pack(self) -> bytes:
        """The content of the run's file."""
        members = {
            f"{name}.csv": table.to_csv(index=False).encode() for name, table in self.tables.items()
        }
        members["provenance.json"] = json.dumps(self.provenance, indent=1).encode()
        return zipped(members, zipfile.ZIP_DEFLATED)

    @classmethod
    def unpack(cls, content: bytes) -> Record:
        """Return what :meth:`pack` gave; the error for something else depends on what it is."""
        members = unzipped(io.BytesIO(content))
        provenance = json.loads(members["provenance.json"])
        tables = {
            name: pd.read_csv(
                io.BytesIO(members[f"{name}.csv"]), usecols=list(columns), dtype=dict(columns)
            )
            for name, columns in named(provenance.get("system", _UNNAMED)).tables.items()
        }
        return cls(tables, provenance)


@dataclass(frozen=True)
class Entry:
    """One run's place in a store.

    Attributes:
        address: of the run.
        folder: where its files are, or None for a shipped run.
        path: the finished run's file, or the archive that a shipped run is in.
    """

    address: str
    folder: Path | None
    path: Path

    @property
    def done(self) -> bool:
        """Return whether the run is finished."""
        return self.path.exists()

    @property
    def shipped(self) -> bool:
        """Return whether it came with the repository."""
        return self.folder is None

    def facts(self) -> dict[str, Any]:
        """Return what the run, or its last checkpoint, says of itself: its "system", its
        "settings", which are empty if nothing can be read, and of a finished run its provenance.
        """
        facts: dict[str, Any] = {}
        if record := self.read():
            facts = record.provenance
        elif self.folder:
            with suppress(Exception):  # a damaged checkpoint is renamed when the run goes on
                facts = self.load_checkpoint() or {}
        return {"system": _UNNAMED, "settings": {}, **facts}

    def read(self) -> Record | None:
        """The finished run; None if there is none, or if it can't be read."""
        if not self.done:
            return None
        try:
            packed_run = self.path.read_bytes() if self.folder else archive(self.path)[self.address]
            return Record.unpack(packed_run)
        except Exception as error:  # what is read is whatever lies there
            if out_of_memory(error):
                raise
            self._set_aside(self.path, error)
            return None

    @contextmanager
    def lock(self, wait: bool = True) -> Iterator[None]:
        """Hold the run for this process; the operating system releases it if the process dies.

        Raises:
            Busy: ``wait`` is false and another process holds it.
        """
        folder = self._own_folder()
        folder.mkdir(parents=True, exist_ok=True)
        try:
            held = FileLock(str(folder / _LOCK)).acquire(timeout=-1 if wait else 0)
        except Timeout:
            raise Busy(f"{folder}: another process is computing this run") from None
        with held:
            yield

    def save(self, content: bytes) -> None:
        """Store a finished run, as :meth:`Record.pack` gives it; it then has no checkpoint."""
        files.put(self._own_folder() / RUN, content)
        (self._own_folder() / CHECKPOINT).unlink(missing_ok=True)

    def save_checkpoint(self, state: dict[str, Any]) -> None:
        """Keep the state of a run in progress: tensors and plain containers."""
        files.put(self._own_folder() / CHECKPOINT, packed(state))

    def load_checkpoint(self) -> dict[str, Any] | None:
        """The last checkpoint, if there is one; raises ValueError if it can't be read."""
        path = self._own_folder() / CHECKPOINT
        return unpacked(path.read_bytes()) if path.exists() else None

    def discard_checkpoint(self, error: Exception) -> None:
        """Rename a checkpoint that the run can't resume from, with a warning."""
        self._set_aside(self._own_folder() / CHECKPOINT, error)

    def delete(self) -> None:
        """Remove the run and what was kept of it; whatever else lies in its folder stays.

        Raises:
            Busy: a process is computing it.
        """
        folder = self._own_folder()
        with self.lock(wait=False), suppress(OSError):  # something is left in the folder
            for path in [path for name in _OWN for path in folder.glob(name)]:
                path.unlink()
            folder.rmdir()

    def _own_folder(self) -> Path:
        if self.folder is None:
            raise PermissionError(f"{self.path}: a shipped run is only read")
        return self.folder

    def _set_aside(self, path: Path, error: Exception) -> None:
        why = f"{type(error).__name__}: {line_of(str(error))}"
        _log.warning("%s can't be read (%s); the run is computed again", path, why)
        if self.folder is not None:
            with suppress(OSError):  # another reader was first, or the store is only read
                os.replace(path, path.with_name(f"{path.name}.damaged"))


def packed(state: dict[str, Any]) -> bytes:
    """A checkpoint's content."""
    buffer = io.BytesIO()
    torch.save(state, buffer)  # torch's own writer reports a full disk as a RuntimeError
    return buffer.getvalue()


def unpacked(content: bytes) -> dict[str, Any]:
    """Return what :func:`packed` got; raises ValueError for something else.

    Nothing but tensors and plain containers is read.
    """
    with unreadable("not a readable checkpoint", ValueError):
        state: dict[str, Any] = torch.load(
            io.BytesIO(content), weights_only=True, map_location="cpu"
        )
    return state


@dataclass(frozen=True)
class Store:
    """A store of runs.

    Attributes:
        root: folder that computed runs are written to.
        shipped: archives of runs that are only read.
    """

    root: Path
    shipped: tuple[Path, ...] = ()

    def entry(self, address: Address | str) -> Entry:
        """The run's place in the writable folder."""
        folder = self.root / str(address)
        return Entry(str(address), folder, folder / RUN)

    def find(self, address: Address) -> tuple[Record, Entry, tuple[str, ...]] | None:
        """The finished run, where it was found, and what differs between here and where it was
        computed; None if there is none.

        A shipped run of the same key is found where the data or the checkpoints that it read are
        absent here, or torch is another: it could not be computed here, or not to the bit. Where
        they are here and differ, it is another run.
        """
        entry = self.entry(address)
        if record := entry.read():
            return record, entry, ()
        alike = [e for e in self._shipped_entries() if e.address.startswith(f"{address.key}-")]
        for entry in sorted(alike, key=lambda e: e.address != str(address)):  # the very same first
            record = entry.read()
            caveats = _differences(record.provenance, address) if record else None
            if record and caveats is not None:
                return record, entry, caveats
        return None

    def entries(self) -> Iterator[Entry]:
        """All there is: computed, interrupted and shipped.

        A folder whose name is no address is no run.
        """
        if self.root.is_dir():
            for folder in sorted(self.root.iterdir()):
                if SPELT.fullmatch(folder.name) and folder.is_dir():
                    yield self.entry(folder.name)
        yield from self._shipped_entries()

    def ship(self, addresses: Collection[str], path: Path, keep: Collection[str] = ()) -> list[str]:
        """Make the archive ``path`` hold these finished runs and, of the others that it has, those
        to keep; return the ones it loses.

        Raises:
            FileNotFoundError: there is no such run, or it is not finished or can't be read.
        """
        before = archive(path)
        runs = {name: before[name] for name in before if name in {*addresses, *keep}}
        for entry in map(self.entry, sorted(set(addresses) - runs.keys())):
            if not entry.read():
                raise FileNotFoundError(f"{entry.path}: no finished run")
            runs[entry.address] = entry.path.read_bytes()
        if runs.keys() != before.keys():
            write_archive(path, runs)
        return [name for name in before if name not in runs]

    def _shipped_entries(self) -> Iterator[Entry]:
        for path in self.shipped:
            yield from (Entry(address, None, path) for address in archive(path))


def _differences(provenance: dict[str, Any], here: Address) -> tuple[str, ...] | None:
    """Sentences; None if something that the run read is here and differs, or if this one would read
    other things.
    """
    there, ours = provenance["inputs"], dict(here.inputs)
    if ours.keys() != there.keys() or any(
        ours.get(name) and ours[name] != digest for name, digest in there.items()
    ):
        return None
    absent = dict.fromkeys(
        name.partition("/")[0] for name, digest in there.items() if digest and not ours.get(name)
    )
    caveats = [
        f"files in {name}/ are missing on this machine, so shipped results are shown"
        for name in absent
    ]
    if provenance["torch"] != here.torch:
        caveats.append(f"torch {provenance['torch']} there, {here.torch} here")
    return tuple(caveats)


def default_store() -> Store:
    """``results/runs`` of the clone, or FEDMUSCLE_RUNS; below it the shipped runs, unless
    FEDMUSCLE_SHIPPED is 0.
    """
    root = os.environ.get("FEDMUSCLE_RUNS") or ROOT / "results/runs"
    alone = os.environ.get("FEDMUSCLE_SHIPPED") == "0"
    shipped = () if alone else tuple(sorted(ROOT.glob(f"figures/*/{ARCHIVE}")))
    return Store(user_path(root), shipped)
