"""Errors of any federation and of any file, remarks on files, and the text of both on one line."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

Kinds = tuple[type[Exception], ...]  # of errors


def out_of_memory(error: BaseException) -> bool:
    """Return whether the memory was too small, in numpy's or torch's words."""
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and "memory" in str(error)
    )


class Diverged(ValueError):
    """A party's training gives no finite numbers any more; the text names the party."""


class RefusedMessage(ValueError):
    """A party sent something else than the server asked for; the text names the party."""


class NotFinite(RefusedMessage, Diverged):
    """A party sent numbers that are not finite."""


class DataError(ValueError):
    """A data file is missing, damaged or not what its place in the layout says; the message names
    it.
    """


class NoFile(DataError):
    """A data file is missing."""


@contextmanager
def unreadable(told: str, kind: type[Exception] = DataError, but: Kinds = ()) -> Iterator[None]:
    """Turn whatever a reader raises inside, whose errors depend on the damage, into ``kind``: what
    is ``told``, and why in one line.

    The errors ``but``, and what says that the memory was too small, stay what they are.
    """
    try:
        yield
    except Exception as error:
        if out_of_memory(error) or isinstance(error, but):
            raise
        raise kind(f"{told} ({type(error).__name__}: {line_of(str(error))})") from None


@contextmanager
def prefixed(
    place: str,
    found: type[Exception] | Kinds,
    kind: type[Exception] = DataError,
) -> Iterator[None]:
    """Turn errors inside of the kinds ``found`` into ``kind``, whose text begins with the
    ``place``.
    """
    try:
        yield
    except found as error:
        raise kind(f"{place}: {error}") from None


@cache  # every user and run reads the same files again
def remark(text: str, *values: object) -> None:
    """Warn once in this process of what a file holds; ``values`` are those of the text's
    placeholders.
    """
    logging.getLogger("fedmuscle").warning(text, *values)


def shown(value: object) -> str:
    """A value from a file as errors may print it: ASCII, short and on one line."""
    return line_of(ascii(value), 60)


def line_of(text: str, most: int = 200) -> str:
    """A text on one line, cut behind so many characters, without what a terminal would obey."""
    line = "".join(filter(str.isprintable, " ".join(text.split())))
    return line if len(line) <= most else f"{line[:most]}..."
