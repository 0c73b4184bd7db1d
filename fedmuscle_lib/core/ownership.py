"""Folders and files of a command's own: it replaces and removes what it made, and refuses a place
that holds anything else.
"""

from __future__ import annotations

from pathlib import Path

_ELSE = "move it away, or name another folder"


class NotOurs(FileExistsError):
    """What lies in the place is not known to be the command's own; the message names it."""


def refuse_others(folder: Path, ours: bool) -> None:
    """Check that ``folder`` is empty or missing, unless it is ``ours``; raises NotOurs, which names
    what it holds.
    """
    if not ours and (found := sorted(path.name for path in folder.glob("*"))):
        raise NotOurs(
            f"{folder}: holds what this command did not write, such as {found[0]}; {_ELSE}"
        )


def refuse_other_file(path: Path, start: bytes) -> None:
    """Check that the file ``path``, if there is one, begins with ``start``, as this command's do;
    raises NotOurs, which names it.
    """
    if path.exists() and not (path.is_file() and path.read_bytes().startswith(start)):
        raise NotOurs(f"{path}: not what this command wrote, and left alone; {_ELSE}")
