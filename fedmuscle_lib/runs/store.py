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
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import pandas as pd
import torch
from filelock import FileLock

from fedmuscle_lib.core import files
from fedmuscle_lib.core.errors import line_of, out_of_memory, unreadable
from fedmuscle_lib.core.files import ROOT, Json, user_path
from fedmuscle_lib.core.training import State
from fedmuscle_lib.runs.address import Address
from fedmuscle_lib.runs.system import named

RUN = "run.zip"
ARCHIVE = "runs.zip"  # of a profile's shipped runs, beside its notebooks' folders
_EPOCH = (1980, 1, 1, 0, 0, 0)  # of files in a zip, so that equal runs are equal files
_UNNAMED = "fedmuscle"  # the system of stored runs that name none: there was no other
_log = logging.getLogger("fedmuscle")


@dataclass(frozen=True)
class Record:
    """A finished run as it is stored: ``History`` without its settings."""

    tables: dict[str, pd.DataFrame]
    provenance: Json

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
        path: the finished run's file, or the archive that a shipped run is in.
        shipped: whether it came with the repository; such a run is only read.
    """

    address: str
    path: Path
    shipped: bool = False

    @property
    def checkpoint(self) -> Path:
        """The file of the run's last checkpoint."""
        return self.path.with_name("checkpoint.pt")

    @property
    def done(self) -> bool:
        """Return whether the run is finished."""
        return self.path.exists()

    def facts(self) -> Json:
        """Return what the run, or its last checkpoint, says of itself: its "system", its
        "settings", which are empty if nothing can be read, and of a finished run its provenance.
        """
        facts: Json = {}
        if record := self.read():
            facts = record.provenance
        else:
            # there may be none, and a damaged one is renamed when the run goes on
            with suppress(Exception):
                facts = self.load_checkpoint()
        return {"system": _UNNAMED, "settings": {}, **facts}

    def read(self) -> Record | None:
        """The finished run; None if there is none, or if it can't be read."""
        if not self.done:
            return None
        try:
            read = archive(self.path)[self.address] if self.shipped else self.path.read_bytes()
            return Record.unpack(read)
        except Exception as error:  # what is read is whatever lies there
            self.set_aside(self.path, error)
            return None

    def lock(self) -> FileLock:
        """Hold the run for this process, after another one that does; the operating system releases
        it if the process dies.
        """
        return FileLock(self.path.with_name("lock"))

    def save(self, content: bytes) -> None:
        """Store a finished run, as :meth:`Record.pack` gives it; it then has no checkpoint."""
        files.put(self.path, content)
        self.checkpoint.unlink(missing_ok=True)

    def save_checkpoint(self, state: State) -> None:
        """Keep the state of a run in progress: tensors and plain containers."""
        files.put(self.checkpoint, packed(state))

    def load_checkpoint(self) -> State:
        """The last checkpoint; raises OSError if there is none, ValueError if it can't be read."""
        return unpacked(self.checkpoint.read_bytes())

    def set_aside(self, path: Path, error: Exception) -> None:
        """Rename the run's file or its checkpoint, which can't be used, with a warning; raises the
        error if it says that the memory was too small.
        """
        if out_of_memory(error):
            raise error
        why = f"{type(error).__name__}: {line_of(str(error))}"
        _log.warning("%s can't be read (%s); the run is computed again", path, why)
        if not self.shipped:
            with suppress(OSError):  # another reader was first, or the store is only read
                os.replace(path, path.with_name(f"{path.name}.damaged"))


def packed(state: State) -> bytes:
    """A checkpoint's content."""
    buffer = io.BytesIO()
    torch.save(state, buffer)  # torch's own writer reports a full disk as a RuntimeError
    return buffer.getvalue()


def unpacked(content: bytes) -> State:
    """Return what :func:`packed` got; raises ValueError for something else.

    Nothing but tensors and plain containers is read.
    """
    with unreadable("not a readable checkpoint", ValueError):
        state: State = torch.load(io.BytesIO(content), weights_only=True, map_location="cpu")
    return state


def zipped(members: Mapping[str, bytes], method: int) -> bytes:
    """A zip of files; equal files give equal bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name, content in members.items():
            file.writestr(zipfile.ZipInfo(name, _EPOCH), content, method)
    return buffer.getvalue()


def unzipped(file: Path | io.BytesIO) -> dict[str, bytes]:
    """The files of a zip, by name; raises what ``zipfile`` does if a checksum is wrong."""
    with zipfile.ZipFile(file) as content:
        return {name: content.read(name) for name in content.namelist()}


def archive(path: Path) -> Mapping[str, bytes]:
    """A profile's shipped runs by address, packed; none where there is no archive.

    Raises:
        DataError: naming the archive, which can't be read.
    """
    stamp = files.stamp_of(path)
    return _archive(path, stamp) if stamp else {}


@lru_cache(maxsize=8)
def _archive(path: Path, stamp: files.Stamp) -> dict[str, bytes]:
    """An archive while its stamp stays the same."""
    with unreadable(f"{path}: not a readable archive of runs"):
        return {
            name.removesuffix(".zip"): content
            for name, content in unzipped(path).items()
            if name.endswith(".zip")
        }


def write_archive(path: Path, runs: Mapping[str, bytes]) -> None:
    """Replace an archive by these runs, packed, by address.

    They are stored as they are: packing them again saves little, and git keeps a run that stays
    only once.
    """
    members = {f"{address}.zip": runs[address] for address in sorted(runs)}
    files.put(path, zipped(members, zipfile.ZIP_STORED))


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
        return Entry(str(address), self.root / str(address) / RUN)

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
            if not (record := entry.read()):
                continue
            if (caveats := _differences(record.provenance, address)) is not None:
                return record, entry, caveats
        return None

    def entries(self) -> Iterator[Entry]:
        """All there is: computed, interrupted and shipped.

        A folder whose name is no address is no run.
        """
        for folder in sorted(self.root.glob("-".join(["[0-9a-f]" * 16, "[0-9a-f]" * 8]))):
            yield self.entry(folder.name)
        yield from self._shipped_entries()

    def ship(self, addresses: Collection[str], path: Path) -> None:
        """Add these finished runs to the archive ``path``.

        Raises:
            FileNotFoundError: there is no such run, or it is not finished or can't be read.
        """
        runs = dict(archive(path))
        for entry in map(self.entry, set(addresses) - runs.keys()):
            if not entry.read():
                raise FileNotFoundError(f"{entry.path}: no finished run")
            runs[entry.address] = entry.path.read_bytes()
        write_archive(path, runs)

    def _shipped_entries(self) -> Iterator[Entry]:
        for path in self.shipped:
            yield from (Entry(address, path, shipped=True) for address in archive(path))


def _differences(provenance: Json, here: Address) -> tuple[str, ...] | None:
    """Sentences; None if something that the run read is here and differs, or if this one would read
    other things.
    """
    there, ours = provenance["inputs"], dict(here.inputs)
    if ours.keys() != there.keys() or any(ours[name] not in ("", there[name]) for name in there):
        return None
    absent = dict.fromkeys(name.partition("/")[0] for name in there if ours[name] != there[name])
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
    shipped = os.environ.get("FEDMUSCLE_SHIPPED") != "0"
    archives = sorted(ROOT.glob(f"figures/*/{ARCHIVE}")) if shipped else ()
    return Store(user_path(root), tuple(archives))
