"""Folders and files of a command's own: it replaces and removes what it made, and refuses a place
that holds anything else before the first byte changes.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from fedmuscle_lib.core.files import digest

_ELSE = "move it away, or name another folder"


class NotOurs(FileExistsError):
    """What lies in the place is not known to be the command's own; the message names it."""


def reach(path: Path, root: Path) -> None:
    """Check that no link lies between ``root``, which may be one, and ``path``, or in its place;
    raises NotOurs.
    """
    for place in [path, *(root / part for part in path.relative_to(root).parents)]:
        if place != root and place.is_symlink():
            raise NotOurs(f"{place}: a link, which is left alone; {_ELSE}")


def vacant(folder: Path, root: Path, but: Collection[str] = (), ours: bool = False) -> None:
    """Check that ``folder``, in or below ``root``, holds nothing but entries of these names, unless
    it is ``ours``; raises NotOurs, which names one.
    """
    reach(folder, root)
    if not ours and (found := sorted({path.name for path in folder.glob("*")} - {*but})):
        raise NotOurs(
            f"{folder}: holds what this command did not write, such as {found[0]}; {_ELSE}"
        )


def headed(path: Path, start: bytes) -> None:
    """Check that the file ``path``, if there is one, begins with ``start``, as this command's do;
    raises NotOurs, which names it.
    """
    reach(path, path.parent)
    if path.exists() and not (path.is_file() and path.read_bytes().startswith(start)):
        raise NotOurs(f"{path}: not what this command wrote, and left alone; {_ELSE}")


def discard(path: Path) -> None:
    """Remove a file of ours; what is a link or no file stays."""
    if path.is_file() and not path.is_symlink():
        path.unlink()


def clear(folder: Path, patterns: Collection[str]) -> None:
    """Remove the files of a folder of ours whose names fit a pattern."""
    for path in [path for pattern in patterns for path in folder.glob(pattern)]:
        discard(path)


def remove(folder: Path, patterns: Collection[str]) -> list[Path]:
    """Remove a folder of ours and its files whose names fit a pattern; return what else it holds,
    which stays, as then the folder does.
    """
    clear(folder, patterns)
    left = sorted(folder.glob("*"))
    if folder.is_dir() and not left:
        folder.rmdir()
    return left


@contextmanager
def scratch(folder: Path, command: str) -> Iterator[Path]:
    """A temporary folder of a command in ``folder``, made if need be; removed afterwards, or by
    :func:`sweep` if the process was killed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder, prefix=f".{command}-") as place:
        yield Path(place)


def sweep(folder: Path, command: str) -> None:
    """Remove what killed processes left of :func:`scratch`."""
    for place in folder.glob(f".{command}-{'?' * 8}"):
        shutil.rmtree(place, ignore_errors=True)


def exchange(new: Path, folder: Path, own: Iterable[str], last: str) -> None:
    """Replace the command's ``own`` files in ``folder`` by those below ``new``; whatever else lies
    there stays.

    Files are moved, so both are on one disk. A killed call leaves some of the new files, which the
    next one takes for its own where they are the same.

    Args:
        own: paths in ``folder`` of files that are the command's.
        last: the file that says that the others are there.

    Raises:
        NotOurs: naming the file in the place of a new one, or the link on the way; nothing has
            changed then.
    """
    fresh = [path.relative_to(new).as_posix() for path in new.rglob("*") if path.is_file()]
    fresh.sort(key=lambda name: (name == last, name))
    known = {name for name in own if (folder / name).is_file()}
    for name in fresh:
        reach(folder / name, folder)
        there = folder / name
        if name not in known and there.exists() and digest(there) != digest(new / name):
            raise NotOurs(f"{there}: not what this command wrote, and left alone; {_ELSE}")
    for name in [*(known & {last}), *(known - {*fresh})]:
        (folder / name).unlink(missing_ok=True)
        with suppress(OSError):  # something is left in it
            os.removedirs((folder / name).parent)
    for name in fresh:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        os.replace(new / name, folder / name)


def fitting(folder: Path, digests: Mapping[str, Collection[str]]) -> set[str]:
    """Return the paths in ``folder`` whose file has one of its SHA-256 digests."""
    return {
        name
        for name in digests
        if (folder / name).is_file() and digest(folder / name) in digests[name]
    }
