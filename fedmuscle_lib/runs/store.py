"""Runs on disk: a writable store, and below it the runs that came with the repository, which are only read.

A finished run is one file, ``run.zip``: its tables as CSV, its provenance, and their checksums. It is moved into place when it is whole,
so that a kill at any point leaves a whole run or none. While a run is computed its checkpoint and lock lie beside it.

A file that is not what was written is named and set aside, and the run is computed again. Shipped runs have their SHA-256 in one more
file, ``SHA256SUMS``, beside them.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import os
import re
import shutil
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain, count
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from filelock import FileLock, Timeout

from fedmuscle_lib.core import files
from fedmuscle_lib.core.errors import line_of, out_of_memory
from fedmuscle_lib.core.files import ROOT, parse_json
from fedmuscle_lib.runs.address import Address
from fedmuscle_lib.runs.system import named

RUN, CHECKPOINT, SUMS = "run.zip", "checkpoint.pt", "SHA256SUMS"
_MOST = 1 << 28  # bytes of a run, on disk and unpacked; the largest shipped one has 20 kB
_UNNAMED = "fedmuscle"  # the system of stored runs that name none: there was no other
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
    def read(cls, path: Path, address: str = "", sha256: str = "") -> Record:
        """What :meth:`pack` gave.

        Args:
            address: that the run must have; any if it is empty.
            sha256: that the file must have; any if it is empty.

        Raises:
            Damaged: a checksum is wrong, or the file is none of ours, or another run's.
            OSError: it can't be read.
        """
        if not path.is_file() or path.stat().st_size > _MOST:
            raise Damaged(f"{path}: not a file, or larger than {_MOST:,} bytes")
        content = path.read_bytes()
        if sha256 and _sha256(content) != sha256:
            raise Damaged(f"{path}: not the file whose SHA-256 is in {SUMS} beside it")
        try:
            members = _members(content)
            sums = {name: digest for digest, name in (line.split("  ") for line in members.pop(SUMS).decode().splitlines())}
            if changed := [name for name in sums.keys() | members.keys() if _sha256(members.get(name, b"")) != sums.get(name)]:
                raise Damaged(f"{path}: {line_of(min(changed))} is not what was written")
            provenance = _checked(parse_json(members["provenance.json"], "provenance.json"))
            columns = named(provenance.get("system", _UNNAMED)).tables
            tables = {name: _table(members[f"{name}.csv"], f"{name}.csv", own) for name, own in columns.items()}
            if (last := tables["metrics"]["round"].max()) != provenance["settings"]["rounds"]:
                raise ValueError(f"metrics.csv ends with round {last} of {provenance['settings']['rounds']}")
        except Damaged:
            raise
        except Exception as error:  # zipfile, zlib, pandas have kinds of their own
            raise Damaged(f"{path}: not a readable run ({type(error).__name__}: {line_of(str(error))})") from None
        if address and provenance["address"] != address:
            raise Damaged(f"{path}: the run {line_of(provenance['address'])} in the place of {address}")
        return cls(tables, provenance)


def _members(content: bytes) -> dict[str, bytes]:
    """The files of a zip.

    Raises:
        ValueError: two have one name, or they are larger than any run's.
    """
    with zipfile.ZipFile(io.BytesIO(content)) as file:
        names = file.namelist()
        if len(names) != len(set(names)) or sum(info.file_size for info in file.infolist()) > _MOST:
            raise ValueError("a name twice, or files larger than a run's")
        return {name: file.read(name) for name in names}


def _checked(provenance: dict[str, Any]) -> dict[str, Any]:
    """The provenance, if it has what a stored run is found and shown by; raises ValueError."""
    for name, kind in {"address": str, "settings": dict, "inputs": dict, "torch": str, "finished": str}.items():
        if not isinstance(provenance.get(name), kind):
            raise ValueError(f"provenance.json: {name} is no {kind.__name__}")
    if not all(isinstance(digest, str) for digest in provenance["inputs"].values()):
        raise ValueError("provenance.json: inputs are no digests")
    return provenance


def _table(content: bytes, name: str, columns: Mapping[str, type]) -> pd.DataFrame:
    """Read a table whose values are of their columns' types; raises ValueError."""
    table = pd.read_csv(io.BytesIO(content), dtype=dict(columns))
    if list(table.columns) != list(columns):
        raise ValueError(f"{name}: columns {list(table.columns)} where {list(columns)} are expected")
    numbers = [column for column, kind in columns.items() if kind is float]
    if name == "metrics.csv" and not np.isfinite(table[numbers]).all(axis=None):  # a run that finds no number is not stored
        raise ValueError(f"{name}: a value is not finite")
    return table


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@dataclass(frozen=True)
class Said:
    """What a run says of itself.

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
        folder: where its files are, or None for a shipped run, which is one file.
        path: the finished run's file.
        sha256: of a shipped run's file, where it is known.
    """

    address: str
    folder: Path | None
    path: Path
    sha256: str = ""

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

    def said(self) -> Said:
        """What the run, or its last checkpoint, says of itself. Each call reads it."""
        if record := self.read():
            facts = record.provenance
            return Said(facts.get("system", _UNNAMED), facts.get("settings", {}), facts["finished"])
        path = self.path.with_name(CHECKPOINT)
        try:
            state = unpacked(path.read_bytes()) if path.is_file() else {}
        except Damaged:
            return Said()
        system, settings = state.get("system", _UNNAMED), state.get("settings")
        return Said(system, settings) if isinstance(settings, dict) and isinstance(system, str) else Said()

    def read(self) -> Record | None:
        """The finished run; None if there is none.

        A damaged one is said to be so and set aside, or, if it is shipped, left where it is; it then counts as missing.
        """
        if not self.done:
            return None
        try:
            return Record.read(self.path, self.address, self.sha256)
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
                if left.is_file():
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
        """The last checkpoint, if there is one. What is no file in its place is set aside."""
        path = self._own_folder() / CHECKPOINT
        if path.exists() and not path.is_file():
            self._set_aside(path, f"{path}: not a file")
        return path.read_bytes() if path.exists() else None

    def discard_checkpoint(self, why: str) -> None:
        """Set a checkpoint aside that can't be gone on from, and say so."""
        path = self._own_folder() / CHECKPOINT
        self._set_aside(path, f"{path}: {why}")

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
            names = (path.with_name(f"{path.name}.damaged{more}") for more in chain([""], (f"-{n}" for n in count(2))))
            with suppress(FileNotFoundError, PermissionError):  # another reader was first, or the store is only read
                os.rename(path, next(name for name in names if not name.exists()))

    def _write(self, name: str, content: bytes) -> None:
        """Put ``content`` in the place of ``name`` at once, when it is complete."""
        files.put(self._own_folder() / name, content)


_SEAL = b"SHA-256 "  # a checkpoint begins with this, the digest of what follows the line, and its end; older ones do not


def packed(state: dict[str, Any]) -> bytes:
    """A checkpoint's content."""
    buffer = io.BytesIO()
    torch.save(state, buffer)  # torch's own writer reports a full disk as a RuntimeError
    content = buffer.getvalue()
    return _SEAL + _sha256(content).encode() + b"\n" + content


def unpacked(content: bytes) -> dict[str, Any]:
    """What :func:`packed` got. Nothing but tensors and plain containers is read.

    Raises:
        Damaged: it is truncated, changed, or none.
    """
    if content.startswith(_SEAL):
        line, _, content = content.partition(b"\n")
        if line != _SEAL + _sha256(content).encode():
            raise Damaged("not a readable checkpoint (its SHA-256 is another)")
    try:
        state = torch.load(io.BytesIO(content), weights_only=True, map_location="cpu")
    except Exception as error:  # zip, pickle and torch have kinds of their own
        if out_of_memory(error):
            raise
        raise Damaged(f"not a readable checkpoint ({type(error).__name__}: {line_of(str(error).strip(), 100)})") from None
    if not isinstance(state, dict):
        raise Damaged(f"not a readable checkpoint (it holds a {type(state).__name__})")
    return state


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
        path = folder / f"{address}.zip"
        files.put(path, entry.path.read_bytes())
        return path

    def _shipped(self, pattern: str) -> Iterator[Entry]:
        for folder in self.shipped:
            if paths := sorted(folder.glob(pattern)):
                sums = _sums(folder)
                yield from (Entry(path.stem, None, path, sums.get(path.name, "")) for path in paths)


def seal(folder: Path) -> None:
    """Write ``SHA256SUMS`` of the shipped runs in a folder, which are checked by it from then on.

    Raises:
        Damaged: a run is not what an earlier one says; the message names it.
    """
    sums = {path.name: _sha256(path.read_bytes()) for path in sorted(folder.glob("*.zip"))}
    known = _sums(folder)
    if changed := [name for name, digest in sums.items() if known.get(name, digest) != digest]:
        raise Damaged(f"{folder / changed[0]}: not the file whose SHA-256 is in {SUMS} beside it")
    if sums != known:
        files.write(folder / SUMS, "".join(f"{digest}  {name}\n" for name, digest in sums.items()))


def faults(folder: Path) -> list[str]:
    """Sentences: which shipped runs in a folder are damaged or missing, or have no line in its ``SHA256SUMS``."""
    sums, found = _sums(folder), []
    for path in sorted(folder.glob("*.zip")):
        try:
            Record.read(path, path.stem, sums.get(path.name, ""))
        except Damaged as error:
            found.append(str(error))
        if sums and path.name not in sums:
            found.append(f"{path}: no line of {SUMS} beside it names it")
    return found + [f"{folder / name}: missing, though {SUMS} names it" for name in sums if not (folder / name).exists()]


def _sums(folder: Path) -> dict[str, str]:
    """SHA-256 of the shipped runs in a folder by file name; empty where nobody wrote them.

    Raises:
        Damaged: naming the line; it is not a checksum and a name.
    """
    path = folder / SUMS
    sums = {}
    for number, line in enumerate(path.read_text(encoding="utf8", errors="replace").splitlines() if path.exists() else (), 1):
        if not (row := re.fullmatch(r"([0-9a-f]{64})  ([\w.-]+\.zip)", line)) or row[2] in sums:
            raise Damaged(f"{path}: line {number} is not a SHA-256 and the name of a run; git has the file as it was")
        sums[row[2]] = row[1]
    return sums


def _differences(provenance: dict[str, Any], here: Address) -> tuple[str, ...] | None:
    """Sentences; None if something that the run read is here and differs, or if this one would read other things."""
    there, ours = provenance["inputs"], dict(here.inputs)
    if ours.keys() != there.keys() or any(ours.get(name) and ours[name] != digest for name, digest in there.items()):
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
