"""Ownership: a command removes or replaces what it can prove that it made, says what it leaves
alone, and follows no link on the way.

A proof is a manifest with digests that fit, a mark inside, or a name that is an address with
nothing but the files that belong there. Whatever else lies in the place is refused before the first
byte changes. The folder that somebody named may itself be a link.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from fedmuscle_lib.core.errors import DataError
from fedmuscle_lib.core.files import digest, put, read_json

_MARK = ".fedmuscle-scratch"  # in a folder of ours that may go; it holds the name of the command
_JOURNAL = (  # in a folder whose files are being exchanged; their digests before and after
    ".fedmuscle-exchange"
)
_ELSE = "move it away, or name another folder"


class NotOurs(FileExistsError):
    """What lies in the place is not known to be the command's own; the message names it."""


# --- refusing


def reach(path: Path, root: Path) -> None:
    """Check the way from ``root``, which somebody named, to ``path`` below it: folders and no link;
    ``path`` itself is no link either.

    Raises:
        NotOurs: naming the link, or the file that lies where a folder should.
    """
    for place in [root, *(root / part for part in reversed(path.relative_to(root).parents)), path]:
        if place.is_symlink() and (place != root or not place.exists()):
            raise NotOurs(f"{place}: a link, which is left alone; {_ELSE}")
        if place.exists() and not place.is_dir() and place != path:
            raise NotOurs(f"{place}: a file, where a folder is needed; {_ELSE}")


def vacant(folder: Path, root: Path, but: Collection[str] = (), ours: bool = False) -> None:
    """Check that ``folder``, in or below ``root``, is a folder or can be made, and holds nothing
    but entries of these names.

    Args:
        ours: the folder is proven to be the command's; then it may hold anything.

    Raises:
        NotOurs: naming what does not fit. A folder in which an :func:`exchange` was killed fits.
    """
    reach(folder, root)
    if folder.exists() and not folder.is_dir():
        raise NotOurs(f"{folder}: a file, where a folder is needed; {_ELSE}")
    if not (ours or (folder / _JOURNAL).is_file()) and (
        found := sorted({path.name for path in folder.glob("*")} - {*but})
    ):
        raise NotOurs(
            f"{folder}: holds what this command did not write, such as {found[0]}; {_ELSE}"
        )


def headed(path: Path, start: bytes) -> None:
    """Check that the file ``path``, if there is one, begins with ``start``, as this command's do;
    raises NotOurs, which names it.
    """
    if path.is_symlink() or path.exists():
        reach(path, path.parent)
        if path.is_file():
            with path.open("rb") as file:
                if file.read(len(start)) == start:
                    return
        raise NotOurs(f"{path}: not what this command wrote, and left alone; {_ELSE}")


# --- removing


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
        (Path(place) / _MARK).write_text(command, encoding="utf8")
        yield Path(place)


def _marked(folder: Path, command: str) -> bool:
    with suppress(OSError, ValueError):
        return not folder.is_symlink() and (folder / _MARK).read_text(encoding="utf8") == command
    return False


def sweep(folder: Path, command: str) -> None:
    """Remove what killed processes left of :func:`scratch`; whatever else has such a name stays."""
    for place in folder.glob(f".{command}-*"):
        if _marked(place, command):
            shutil.rmtree(place)


# --- replacing


def exchange(new: Path, folder: Path, own: Iterable[str], last: str) -> None:
    """Put the files below ``new`` in the place of the command's ``own`` in ``folder``; whatever
    else lies there stays.

    Files are moved, so both are on one disk. What a killed call leaves is known to the next one.

    Args:
        own: paths in ``folder`` of files that are the command's.
        last: the file that says that the others are there.

    Raises:
        NotOurs: naming the file in the place of a new one, or the link on the way; nothing has
            changed then.
    """
    fresh = [
        path.relative_to(new).as_posix()
        for path in new.rglob("*")
        if path.is_file() and path.name != _MARK
    ]
    fresh.sort(key=lambda name: (name == last, name))
    known = {
        name for name in {*own, *_recorded(folder)} if _inside(name) and (folder / name).is_file()
    }
    stale = sorted(known - {*fresh})
    for name in [*fresh, *stale]:
        reach(folder / name, folder)
        if name not in known and (folder / name).exists():
            raise NotOurs(f"{folder / name}: not what this command wrote, and left alone; {_ELSE}")
    digests = {
        name: [digest(place / name) for place in (folder, new) if (place / name).is_file()]
        for name in [*fresh, *stale]
    }
    put(folder / _JOURNAL, json.dumps(digests).encode())
    for name in [*(known & {last}), *stale]:
        (folder / name).unlink(missing_ok=True)
        with suppress(OSError):  # something is left in it, as the journal is in the folder itself
            os.removedirs((folder / name).parent)
    for name in fresh:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        os.replace(new / name, folder / name)
    (folder / _JOURNAL).unlink()


def fitting(folder: Path, digests: Mapping[str, Collection[str]]) -> set[str]:
    """Return the paths in ``folder`` whose file has one of its SHA-256 digests."""
    files = {name: folder / name for name in digests if _inside(name)}
    return {
        name for name, path in files.items() if path.is_file() and digest(path) in digests[name]
    }


def _inside(name: str) -> bool:
    """Return whether a path that a file names stays in its folder."""
    return not Path(name).is_absolute() and ".." not in Path(name).parts


def _recorded(folder: Path) -> set[str]:
    """Return the files of an exchange that was killed."""
    with suppress(DataError):
        found = read_json(folder / _JOURNAL)
        return fitting(folder, {name: own for name, own in found.items() if isinstance(own, list)})
    return set()
