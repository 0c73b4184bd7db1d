"""What a kind of hostile input says of itself, and the table of the kinds: a new one is a file here
and a name in ``KINDS``.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

KINDS = (
    "pickles", "captions", "coco", "pictures", "stored", "resumed", "manifests", "arrays", "lists", "sums", "answers", "messages",
    "settings", "commands", "callers",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One input.

    Attributes:
        content: of the file; or what lies in its place: "pipe", "device" or "folder".
        refused: why a reader must refuse it; empty where it may also be read.
    """

    content: bytes | str
    refused: str = ""

    def write(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        match self.content:
            case bytes():
                path.write_bytes(self.content)
            case "pipe":
                os.mkfifo(path)
            case "device":
                path.symlink_to("/dev/zero")
            case _:
                path.symlink_to(path.parent)


@dataclass(frozen=True)
class Kind:
    """A kind of input.

    Attributes:
        file: where it lies below a folder.
        prepare: writes into the folder what else the reader needs, once.
        case: draws an input; equal draws give equal inputs.
        read: reads the folder as a run does.
        refusals: the errors that are a refusal.
        named: what every refusal says; the folder if this is None.
    """

    file: str
    prepare: Callable[[Path], None]
    case: Callable[[random.Random], Case]
    read: Callable[[Path], object]
    refusals: tuple[type[Exception], ...]
    named: str | None = None


def kind(name: str) -> Kind:
    """A kind by its name."""
    return import_module(f"hostile.{name}").KIND


def scrambled(content: bytes, draws: random.Random) -> bytes:
    """The content with one to four bytes or stretches flipped, removed, repeated or replaced."""
    for _ in range(draws.randint(1, 4)):
        at = draws.randrange(len(content) + 1)
        length = draws.choice((1, 1, 1, 2, 4, 8, 64))
        stretch = content[at : at + length]
        other = draws.choice(
            (
                b"",
                draws.randbytes(length),
                stretch * 2,
                b"\xff" * length,
                b"\0" * length,
                stretch * draws.choice((1, 1000)),
            )
        )
        content = content[:at] + other + content[at + length :]
    return content
