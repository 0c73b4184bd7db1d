"""The notebooks as git has them staged, which is what a commit would hold.

Whoever reads a notebook saves it with outputs, with other parameters or with answers to exercises.
That is no fault of the repository's, and no test looks at it.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def checked_out(root: Path, target: Path) -> Path | None:
    """Write the staged ``notebooks/`` of the clone ``root`` below ``target``; return their folder,
    or None where there is no git to ask.
    """
    git = ["git", "-C", str(root)]
    try:
        names = subprocess.run(
            [*git, "ls-files", "-z", "notebooks"], capture_output=True, check=True
        ).stdout
        if not names:  # a folder without a history inside somebody else's clone
            return None
        subprocess.run(
            [*git, "checkout-index", "-z", "--stdin", f"--prefix={target}/"],
            input=names,
            capture_output=True,
            check=True,
        )
    except (FileNotFoundError, subprocess.CalledProcessError):
        return None
    return target / "notebooks"


_kept = tempfile.TemporaryDirectory(prefix="staged-")  # as long as this process
_staged = checked_out(ROOT, Path(_kept.name))
NOTEBOOKS = _staged or ROOT / "notebooks"
as_committed = pytest.mark.skipif(
    _staged is None, reason="without git nobody knows what was committed"
)


def place(path: Path) -> Path:
    """Where a notebook lies in the clone, and its links start."""
    return ROOT / path.relative_to(NOTEBOOKS.parent)
