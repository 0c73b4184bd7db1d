"""One run of a data set's command: check, download, verify, write to a temporary folder, report,
move into place.

A folder is whole if its manifest says so. A run marks the old manifest as unfinished before it
moves anything, and writes the new one last: an interrupted run leaves nothing that looks whole, and
the same command completes it.

An archive from the official host must be the official one, unless ``--allow-subset`` is given. An
archive from a place that the user named (``--base-url``, ``--archives``) may differ, and then the
run and the manifest say so; it must match a ``SHA256SUMS`` beside it.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from filelock import FileLock, Timeout

from data_prep.io.entry import Archive, Entry, SourceError
from data_prep.io.fetch import Source
from fedmuscle_lib.core.files import MANIFEST, digest, put

_VERSION = 3  # of what the commands write


@dataclass(frozen=True)
class Place:
    """A folder below ``data_dir`` that a run owns: all of it, or only ``entries`` of it."""

    folder: str
    entries: tuple[str, ...] = ()


def chosen(options: dict, parts: Mapping[str, Place], default: str) -> list[str]:
    """Return the parts of a data set that the option ``parts`` asks for; raises SourceError if one
    is not in ``parts``.
    """
    names = list(dict.fromkeys((options.get("parts") or default).split(",")))
    if unknown := set(names) - parts.keys():
        raise SourceError(f"--parts: {min(unknown)!r} is none of {', '.join(parts)}")
    return names


@dataclass
class Run:
    """A run of a data set's command.

    Attributes:
        options: values of the command's options, by name.
        places: the folders to write.
        say: prints a line.
        allow_subset: accept other archives than the official ones from the official host.
        force: replace files that this command did not write.
        root: the temporary folder that stands for ``data_dir`` until everything is written.
        found: counts of what the archives hold, under the names of ``entry.counts``.
        sizes: what was asked for and what was got.
        archives: what the manifest says of the archives that were read.
    """

    entry: Entry
    options: dict
    source: Source
    places: tuple[Place, ...]
    data_dir: Path
    say: Callable[[str], None] = print
    allow_subset: bool = False
    force: bool = False
    root: Path = Path()
    found: dict[str, int] = field(default_factory=dict)
    sizes: list[dict] = field(default_factory=list)
    archives: list[dict] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        """The folder to write, of a data set that has a single one."""
        (place,) = self.places
        return self.root / place.folder

    def note(self, text: str, counted: str = "", n: int = 0) -> None:
        """Print a note.

        If something is ``counted``, the manifest's table of sizes says that there are ``n`` of it.
        """
        self.say(f"{self.entry.name}: NOTE: {text}")
        if counted:
            self.sizes.append({"what": counted, "holders": 1, "asked": n, "got": n})

    def archive(self, archive: Archive) -> Path:
        """Obtain and check an archive.

        Raises:
            SourceError: it is missing, does not match its ``SHA256SUMS``, or is not the official
                one though the official host sent it.
        """
        path = self.source.obtain(archive)
        sums, sha256, size = self._checksums, digest(path), path.stat().st_size
        if sums and archive.name not in sums:
            self.note(f"{archive.name}: the SHA256SUMS beside it does not name it")
        if sums.get(archive.name, sha256) != sha256:
            raise SourceError(
                f"{path}: damaged: its SHA-256 is not the one of SHA256SUMS beside it; delete it"
                " and run the command again"
            )
        official = None
        if archive.md5:
            official = digest(path, "md5") == archive.md5
        elif archive.bytes not in {None, size}:  # a size that fits proves nothing
            official = False
        if official is False and self.source.official and not self.allow_subset:
            stated = f"MD5 is not the official {archive.md5}"
            if not archive.md5:
                stated = f"size is not the official {archive.bytes:,} bytes"
            raise SourceError(
                f"{path}: its {stated}: a damaged download, or another edition; "
                "delete it to fetch it again, or pass --allow-subset to use it as it is"
            )
        self.archives.append(
            {"name": archive.name, "bytes": size, "sha256": sha256, "official": official}
        )
        return path

    @cached_property
    def _checksums(self) -> dict[str, str]:
        return self.source.sums()

    def images_in(self, place: Place) -> set[str]:
        """Return the names without suffix of the images that an earlier run of this command put
        into a place.
        """
        if _read_manifest(self.data_dir / place.folder).get("dataset") != self.entry.name:
            return set()
        return {
            path.stem for path in _paths(self.data_dir, place) if path.suffix in {".jpg", ".png"}
        }

    def rng(self, *address: object) -> np.random.Generator:
        """Return a generator of the command's seed, another for each data set and address."""
        return np.random.default_rng(
            [self.options["seed"], *repr((self.entry.name, *address)).encode()]
        )

    @property
    def request(self) -> dict:
        """Return what distinguishes the run from the other runs of its command."""
        return {"from": str(self.source), **self.options}

    @property
    def official(self) -> bool:
        """Return whether every checksum, size and count that is known equals the official one."""
        counts = {name: self.found.get(name, n) for name, n in self.entry.counts.items()}
        return (
            all(archive["official"] is not False for archive in self.archives)
            and counts == self.entry.counts
        )

    def manifest(self) -> dict:
        packages = ("numpy", "pillow", "pycocotools")
        return {
            "dataset": self.entry.name,
            "whole": True,
            "official": self.official,
            "archives": self.archives,
            "counts": {"found": self.found, "official": self.entry.counts},
            "sizes": self.sizes,
            "request": self.request,
            "versions": (
                {"data_prep": _VERSION, "python": platform.python_version()}
                | {name: version(name) for name in packages}
            ),
        }


def prepare(run: Run, write: Callable[[Run], None]) -> dict:
    """Write the places of a run below ``data_dir``, unless a run with the same request has already;
    return the manifest.

    Raises:
        SourceError: an archive is missing or damaged, or a place holds files of others and
            ``force`` is not given.
        OSError: a folder can't be read or written.
    """
    name, data_dir = run.entry.name, run.data_dir
    there = [_read_manifest(data_dir / place.folder) for place in run.places]
    if all(_is_done(run, *pair) for pair in zip(run.places, there, strict=True)):
        run.say(
            f"{name}: {', '.join(place.folder for place in run.places)} in {data_dir}: there"
            " already, whole; nothing to do"
        )
        return there[0]
    refuse_others(run)
    _terms(run)
    try:
        with (
            FileLock(data_dir / f".{name}.lock", timeout=0),
            TemporaryDirectory(dir=data_dir, prefix=f".{name}-") as scratch,
        ):
            return _written(run, write, Path(scratch))
    except Timeout:
        raise SourceError(f"{data_dir}: another `data_prep {name}` is at work here") from None


def _written(run: Run, write: Callable[[Run], None], scratch: Path) -> dict:
    """Write the places aside and move them into place; return the manifest."""
    run.root = scratch / "new"
    write(run)
    _report(run)
    manifest = run.manifest()
    refuse_others(run)  # another command may have come first in the hours since
    # marked before any is moved: the old users of one place may have the new public images of
    # another
    for place in run.places:
        most = max(_count(run.data_dir, place), _count(run.root, place))
        _write_manifest(run.data_dir / place.folder, manifest | {"whole": False, "files": most})
    for place in run.places:
        _move(run, place, manifest, scratch / "old")
    return manifest


def _is_done(run: Run, place: Place, manifest: dict) -> bool:
    """Return whether a place holds, as its manifest says, all of what a run with the same request
    wrote.
    """
    archives = manifest.get("archives", []) if run.source.folder else []
    paths = [(run.source.folder / archive["name"], archive["bytes"]) for archive in archives]
    return (
        manifest.get("dataset") == run.entry.name
        and manifest["whole"]
        and manifest["versions"]["data_prep"] == _VERSION
        and _count(run.data_dir, place) == manifest["files"]
        and _given(manifest["request"]) == _given(run.request)
        and not any(path.is_file() and path.stat().st_size != size for path, size in paths)
    )


def _given(request: dict) -> dict:
    """Return the options of a request that have a value: older manifests lack the options that were
    added since.
    """
    return {name: value for name, value in request.items() if value is not None}


def refuse_others(run: Run) -> None:
    """Raise SourceError if a place holds files that this command did not write, unless ``force`` is
    given, or lies behind a link.
    """
    for place in run.places:
        folder = run.data_dir / place.folder
        for name in (MANIFEST, *place.entries):
            if (folder / name).resolve() != run.data_dir.resolve() / place.folder / name:
                raise SourceError(f"{folder / name}: behind a link, which is left alone")
        manifest, files, whose = _read_manifest(folder), _count(run.data_dir, place), ""
        if not manifest:
            whose = "that this command did not write" if files else ""
        elif manifest["dataset"] != run.entry.name:
            whose = f"made by `data_prep {manifest['dataset']}`"
        elif (more := files - manifest.get("files", files)) > 0:
            whose = f"that this command did not write ({more:,} more than its manifest says)"
        if whose and not run.force:
            raise SourceError(
                f"{folder} holds files {whose}; --force replaces them, --data-dir DIR writes"
                " elsewhere"
            )


def _move(run: Run, place: Place, manifest: dict, old: Path) -> None:
    folder = run.data_dir / place.folder
    for stale in set(place.entries or (path.name for path in folder.iterdir())) - {MANIFEST}:
        if os.path.lexists(folder / stale):
            (old / place.folder).mkdir(parents=True, exist_ok=True)
            (folder / stale).rename(old / place.folder / stale)
    for new in sorted((run.root / place.folder).glob("*")):
        if new.name in (place.entries or (new.name,)):
            new.rename(folder / new.name)
    _write_manifest(folder, manifest | {"files": _count(run.data_dir, place)})


def _write_manifest(folder: Path, manifest: dict) -> None:
    put(folder / MANIFEST, json.dumps(manifest, indent=1).encode())


def _read_manifest(folder: Path) -> dict:
    """Return the manifest of a folder; empty if there is none of these commands'."""
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
    except (OSError, ValueError):
        return {}
    return manifest if isinstance(manifest, dict) and "dataset" in manifest else {}


def _count(data_dir: Path, place: Place) -> int:
    return sum(1 for _ in _paths(data_dir, place))


def _paths(data_dir: Path, place: Place) -> Iterator[Path]:
    """Iterate over the files of a place, without the manifest.

    A link to a folder of the user's is one, if the folder is there.
    """
    folder = data_dir / place.folder
    roots = [folder / name for name in place.entries] if place.entries else [folder]
    paths = (path for root in roots for path in (root, *root.rglob("*")) if path.name != MANIFEST)
    yield from (path for path in paths if path.is_file() or (path.is_symlink() and path.exists()))


def _terms(run: Run) -> None:
    """Print the terms of a data set, once for each data directory."""
    shown = run.data_dir / ".terms" / run.entry.name
    if not shown.exists():
        run.say(f"{run.entry.name}: terms: {run.entry.terms} ({run.entry.home})")
        put(shown, f"{run.entry.terms}\n".encode())


def _report(run: Run) -> None:
    if not run.official:
        others = [archive["name"] for archive in run.archives if archive["official"] is False]
        counts = ", ".join(
            f"{run.found.get(key, 0):,} of {n:,} {key}"
            for key, n in run.entry.counts.items()
            if key in run.found
        )
        checksums = f"; not the official checksum: {', '.join(others)}" if others else ""
        run.note(
            f"this is a SUBSET OR ANOTHER EDITION of the data set: {counts}{checksums}. The"
            " manifest says so."
        )
    for line in run.sizes:
        if line["got"] < line["asked"]:
            each = f" for each of {line['holders']} users" if line["holders"] > 1 else ""
            run.note(f"{line['what']}: {line['asked']:,} asked for, {line['got']:,} got{each}")


def plan(run: Run) -> None:
    """Print what a run would fetch and write, and do neither; raises SourceError if the source
    can't be reached.
    """
    entry, source, say = run.entry, run.source, run.say
    say(f"{entry.name}: terms: {entry.terms} ({entry.home})")
    for archive in entry.archives:
        at = source.folder / archive.name if source.folder else source.url(archive)
        if archive.bulk and source.official:
            say(f"  {archive.name}: only the images that are needed come, about 160 kB each")
        elif (size := source.size(archive)) is None:
            say(f"  {archive.name}: MISSING at {at}")
        else:
            to = "read in place" if source.folder else f"to {source.store / archive.name}"
            there = " (there already)" if (source.store / archive.name).exists() else ""
            stated = f"{size:,} bytes" if size >= 0 else "size not stated"
            say(f"  {archive.name}: {stated} from {at}, {to}{there}")
    for place in run.places:
        owned = "{" + ",".join(place.entries) + "}" if place.entries else ""
        say(f"  writes {run.data_dir / place.folder / owned}")
