"""Records of the catalogue: a data set, its archives, and the options of its command."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


class SourceError(Exception):
    """An archive is missing or damaged, or lacks what was asked for; the message names it and says
    what to do.
    """


@dataclass(frozen=True)
class Archive:
    """A file that a data set is distributed as.

    Attributes:
        bytes: the official size; None if unknown.
        md5: the official checksum; None if none is published.
        bulk: fetch its files one by one where the archive is not at hand.
    """

    name: str
    url: str
    bytes: int | None = None
    md5: str | None = None
    bulk: bool = False


@dataclass(frozen=True)
class Option:
    """An option of a data set's command.

    Attributes:
        name: the key in a run's options; the command line writes ``train_size`` as
            ``--train-size``.
        kind: int, float or str; bool for a flag, which is True or None.
        help: its line in ``--help``.
        least: the smallest value that is accepted.
        default: the value of an option that was not given.
        shown: the default as ``--help`` shows it, if not as its value.
    """

    name: str
    kind: type[bool] | type[float] | type[int] | type[str]
    help: str
    least: float | None = None
    default: int | None = None
    shown: str = ""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A data set.

    Attributes:
        name: its command.
        title: a line for ``--help``, with the data set's display name before a colon.
        folder: that the command writes below ``data_dir``, if it is a single one.
        counts: what the official archives hold; a run counts under the same names.
        takes: the options of its command, besides those of every data set's.
        facts: what its own module reads: names of files, of classes, of keys in its files.
    """

    name: str
    title: str
    home: str
    terms: str
    archives: tuple[Archive, ...]
    counts: dict[str, int]
    folder: str = ""
    takes: tuple[Option, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def display_name(self) -> str:
        return self.title.partition(":")[0]
