"""Runs on disk: a writable store, and below it the runs that came with the repository, which are
only read.

A finished run is one file, ``run.zip``: its tables as CSV, its provenance, and their checksums. It
is moved into place when it is whole, so that a kill at any point leaves a whole run or none. While
a run is computed its checkpoint and lock lie beside it. A file that is not what was written is
named and set aside, and the run is computed again. A profile's shipped runs lie in one archive.
"""

from __future__ import annotations

import io
import json
import logging
import os
import zipfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain, count
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from filelock import FileLock, Timeout

from fedmuscle_lib.core import files, ownership
from fedmuscle_lib.core.errors import line_of, unreadable
from fedmuscle_lib.core.files import ROOT, parse_json, user_path
from fedmuscle_lib.runs.address import SPELT, Address
from fedmuscle_lib.runs.archive import (
    ARCHIVE,
    MOST,
    Damaged,
    Sealed,
    archive,
    sha256,
    write_archive,
    zipped,
)
from fedmuscle_lib.runs.system import named

RUN, CHECKPOINT = "run.zip", "checkpoint.pt"
_HALF = [
    f".{name}-{'[0-9a-f]' * 8}" for name in (RUN, CHECKPOINT)
]  # by a process that was killed while writing
_OWN = [
    RUN,
    CHECKPOINT,
    "lock",
    f"{RUN}.damaged*",
    f"{CHECKPOINT}.damaged*",
    *_HALF,
]  # all that lies in a run's folder
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
        return zipped(
            members | {"provenance.json": json.dumps(self.provenance, indent=1).encode()},
            zipfile.ZIP_DEFLATED,
        )

    @classmethod
    def read(cls, path: Path, address: str = "") -> Record:
        """Return what :meth:`pack` gave, from a file; raises as :meth:`unpack`, and OSError if it
        can't be read.
        """
        if not path.is_file() or path.stat().st_size > MOST:
            raise Damaged(f"{path}: not a file, or larger than {MOST:,} bytes")
        return cls.unpack(path.read_bytes(), str(path), address)

    @classmethod
    def unpack(cls, content: bytes, place: str, address: str = "") -> Record:
        """Return what :meth:`pack` gave.

        Args:
            place: where it comes from.
            address: that the run must have; any if it is empty.

        Raises:
            Damaged: naming ``place``; a checksum is wrong, or it is none of ours, or another run's.
        """
        sealed = Sealed(content, place)
        members = {name: sealed.read(name) for name in sealed.sums}
        with unreadable(f"{place}: not a readable run", Damaged):
            provenance = _checked(parse_json(members["provenance.json"], "provenance.json"))
            columns = named(provenance.get("system", _UNNAMED)).tables
            tables = {
                name: _table(members[f"{name}.csv"], f"{name}.csv", own)
                for name, own in columns.items()
            }
            if (last := tables["metrics"]["round"].max()) != provenance["settings"]["rounds"]:
                raise ValueError(
                    f"metrics.csv ends with round {last} of {provenance['settings']['rounds']}"
                )
        if address and provenance["address"] != address:
            raise Damaged(
                f"{place}: the run {line_of(provenance['address'])} in the place of {address}"
            )
        return cls(tables, provenance)


def _checked(provenance: dict[str, Any]) -> dict[str, Any]:
    """The provenance, if it has what a stored run is found and shown by; raises ValueError."""
    for name, kind in {
        "address": str,
        "settings": dict,
        "inputs": dict,
        "torch": str,
        "finished": str,
    }.items():
        if not isinstance(provenance.get(name), kind):
            raise ValueError(f"provenance.json: {name} is no {kind.__name__}")
    if not all(isinstance(digest, str) for digest in provenance["inputs"].values()):
        raise ValueError("provenance.json: inputs are no digests")
    return provenance


def _table(content: bytes, name: str, columns: Mapping[str, type]) -> pd.DataFrame:
    """Read a table whose values are of their columns' types; raises ValueError."""
    table = pd.read_csv(io.BytesIO(content), dtype=dict(columns))
    if list(table.columns) != list(columns):
        raise ValueError(
            f"{name}: columns {list(table.columns)} where {list(columns)} are expected"
        )
    numbers = [column for column, kind in columns.items() if kind is float]
    if name == "metrics.csv" and not np.isfinite(table[numbers]).all(
        axis=None
    ):  # a run that finds no number is not stored
        raise ValueError(f"{name}: a value is not finite")
    return table


@dataclass(frozen=True)
class Description:
    """A run's description of itself.

    Attributes:
        system: its name.
        settings: what was asked for, as JSON values; empty where nothing readable says it.
        finished: when, in ISO format and UTC; None while it is not.
    """

    system: str = _UNNAMED
    settings: dict[str, Any] = field(default_factory=dict)
    finished: str | None = None


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

    @property
    def nbytes(self) -> int:
        """Size on disk, of whatever there is of the run."""
        if self.folder is None:
            return archive(self.path).nbytes(f"{self.address}.zip")
        return sum(path.stat().st_size for path in self.folder.iterdir() if path.exists())

    def description(self) -> Description:
        """Return what the run, or its last checkpoint, says of itself. Each call reads it."""
        if record := self.read():
            facts = record.provenance
            return Description(facts.get("system", _UNNAMED), facts["settings"], facts["finished"])
        path = self.path.with_name(CHECKPOINT)
        try:
            state = unpacked(path.read_bytes()) if path.is_file() else {}
        except Damaged:
            return Description()
        system, settings = state.get("system", _UNNAMED), state.get("settings")
        return (
            Description(system, settings)
            if isinstance(settings, dict) and isinstance(system, str)
            else Description()
        )

    def read(self) -> Record | None:
        """The finished run; None if there is none.

        A damaged one is said to be so and set aside, or, if it is shipped, left where it is; it
        then counts as missing.
        """
        if not self.done:
            return None
        try:
            return (
                Record.read(self.path, self.address)
                if self.folder
                else _shipped(self.path, self.address)
            )
        except Damaged as error:
            self._set_aside(self.path, str(error))
            return None

    @contextmanager
    def lock(self, wait: bool = True) -> Iterator[None]:
        """Hold the run for this process; the operating system releases it if the process dies.

        Raises:
            Busy: ``wait`` is false and another process holds it.
            NotOurs: a link or a file lies where the run's folder should.
        """
        folder = self._own_folder()
        folder.mkdir(parents=True, exist_ok=True)
        try:
            held = FileLock(str(folder / "lock")).acquire(timeout=-1 if wait else 0)
        except Timeout:
            raise Busy(f"{folder}: another process is computing this run") from None
        with held:
            ownership.clear(folder, _HALF)
            yield

    def save(self, content: bytes) -> None:
        """Store a finished run, as :meth:`Record.pack` gives it; afterwards it is :attr:`done` and
        has no checkpoint.
        """
        files.put(self._own_folder() / RUN, content)
        ownership.discard(self._own_folder() / CHECKPOINT)

    def tidy(self) -> None:
        """Remove the checkpoint of a finished run, which a kill between the two steps of
        :meth:`save` leaves.
        """
        with suppress(OSError):  # a store that is only read
            ownership.discard(self._own_folder() / CHECKPOINT)

    def save_checkpoint(self, content: bytes) -> None:
        """Keep what :func:`packed` gave of a run in progress."""
        files.put(self._own_folder() / CHECKPOINT, content)

    def load_checkpoint(self) -> bytes | None:
        """The last checkpoint, if there is one. What is no file in its place is set aside."""
        path = self._own_folder() / CHECKPOINT
        if path.exists() and not path.is_file():
            self._set_aside(path, f"{path}: not a file")
        return path.read_bytes() if path.exists() else None

    def discard_checkpoint(self, why: str) -> None:
        """Set a checkpoint aside that can't be gone on from, and say so."""
        path = self._own_folder() / CHECKPOINT
        self._set_aside(path, f"{path}: {why}")

    def delete(self) -> list[Path]:
        """Remove the run and what was kept of it; return what else lies in its folder, which is
        left alone.

        Raises:
            Busy: a process is computing it.
            NotOurs: a link or a file lies where the run's folder should.
        """
        with self.lock(wait=False):
            return ownership.remove(self._own_folder(), _OWN)

    def _own_folder(self) -> Path:
        if self.folder is None:
            raise PermissionError(f"{self.path}: a shipped run is only read")
        ownership.reach(self.folder / RUN, self.folder.parent)
        return self.folder

    def _set_aside(self, path: Path, why: str) -> None:
        _log.warning("%s; the run is computed again", why)
        if self.folder is not None and not self.folder.is_symlink() and path.exists():
            names = (
                path.with_name(f"{path.name}.damaged{more}")
                for more in chain([""], (f"-{n}" for n in count(2)))
            )
            with suppress(
                FileNotFoundError, PermissionError
            ):  # another reader was first, or the store is only read
                os.rename(path, next(name for name in names if not name.exists()))


_SEAL = (  # a checkpoint begins with this, the digest of what follows the line, and its end
    b"SHA-256 "
)


def packed(state: dict[str, Any]) -> bytes:
    """A checkpoint's content."""
    buffer = io.BytesIO()
    torch.save(state, buffer)  # torch's own writer reports a full disk as a RuntimeError
    content = buffer.getvalue()
    return _SEAL + sha256(content).encode() + b"\n" + content


def unpacked(content: bytes) -> dict[str, Any]:
    """Return what :func:`packed` got. Nothing but tensors and plain containers is read.

    Raises:
        Damaged: it is truncated, changed, or none.
    """
    line, _, content = content.partition(b"\n")
    if line != _SEAL + sha256(content).encode():
        raise Damaged("not a readable checkpoint (its SHA-256 is another)")
    with unreadable("not a readable checkpoint", Damaged):
        state = torch.load(io.BytesIO(content), weights_only=True, map_location="cpu")
    if not isinstance(state, dict):
        raise Damaged(f"not a readable checkpoint (it holds a {type(state).__name__})")
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

        A shipped run of the same question is found where the data or the checkpoints that it read
        are absent here, or torch is another: it could not be computed here, or not to the bit.
        Where they are here and differ, it is another run.
        """
        entry = self.entry(address)
        if record := entry.read():
            entry.tidy()
            return record, entry, ()
        candidates = [
            entry
            for entry in self._shipped_entries()
            if entry.address.startswith(f"{address.key}-")
        ]
        candidates.sort(key=lambda entry: entry.address != str(address))  # the very same first
        for entry in candidates:
            if (record := entry.read()) and (
                caveats := _differences(record.provenance, address)
            ) is not None:
                return record, entry, caveats
        return None

    def entries(self) -> Iterator[Entry]:
        """All there is: computed, interrupted and shipped.

        A folder whose name is no address is no run.
        """
        if self.root.is_dir():
            folders = sorted(
                folder
                for folder in self.root.iterdir()
                if SPELT.fullmatch(folder.name) and folder.is_dir()
            )
            yield from (self.entry(folder.name) for folder in folders)
        yield from self._shipped_entries()

    def ship(self, addresses: Collection[str], path: Path, keep: Collection[str] = ()) -> list[str]:
        """Make the archive ``path`` hold these finished runs and, of the others that it has, those
        to keep; return the ones it loses.

        Raises:
            FileNotFoundError: there is no such run, or it is not finished.
            NotOurs: a link lies in the archive's place.
            Damaged: one is not what was written.
        """
        ownership.reach(path, path.parent)
        there = archive(path)
        before = [name.removesuffix(".zip") for name in there.sums]
        runs = {
            address: there.read(f"{address}.zip")
            for address in before
            if address in {*addresses, *keep}
        }
        for entry in map(self.entry, sorted(set(addresses) - runs.keys())):
            if not entry.done:
                raise FileNotFoundError(f"{entry.path}: no finished run")
            Record.read(entry.path, entry.address)
            runs[entry.address] = entry.path.read_bytes()
        if runs.keys() != set(before):
            write_archive(path, runs)
        return [address for address in before if address not in runs]

    def _shipped_entries(self) -> Iterator[Entry]:
        for path in self.shipped:
            yield from (Entry(name.removesuffix(".zip"), None, path) for name in archive(path).sums)


def faults(path: Path) -> list[str]:
    """Sentences: which runs of an archive are damaged, or that it can't be read at all."""
    found = []
    try:
        for name in archive(path).sums:
            try:
                _shipped(path, name.removesuffix(".zip"))
            except Damaged as error:
                found.append(str(error))
    except Damaged as error:
        found.append(str(error))
    return found


def _shipped(path: Path, address: str) -> Record:
    name = f"{address}.zip"
    return Record.unpack(archive(path).read(name), f"{path}: {name}", address)


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
    shipped = (
        ()
        if os.environ.get("FEDMUSCLE_SHIPPED") == "0"
        else tuple(sorted(ROOT.glob(f"figures/*/{ARCHIVE}")))
    )
    return Store(
        user_path(os.environ.get("FEDMUSCLE_RUNS") or ROOT / "results/runs", "FEDMUSCLE_RUNS"),
        shipped,
    )
