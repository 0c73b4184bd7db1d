"""Exit codes of commands and, where one failed, the line that says why.

``python -m fedmuscle_lib`` and ``python -m data_prep`` end here, whatever was typed and whatever
happened.
"""

from __future__ import annotations

import errno
import sys
import traceback
from collections.abc import Sequence

import typer

from fedmuscle_lib.core.errors import Diverged, RefusedMessage, out_of_memory, printable

DONE, FAILURE, MISTAKE = 0, 1, 2  # what was begun failed; what was typed can't be done
INTERRUPTED = 130  # typer's
LONGEST = 1000  # characters of the line
_TRACEBACK = "--traceback"
_RUNNING = (Diverged, RefusedMessage)  # ValueErrors that nobody typed
_PLACES = (
    FileNotFoundError,
    FileExistsError,
    NotADirectoryError,
    IsADirectoryError,
    PermissionError,
)
_NO_PLACE = {errno.ENAMETOOLONG, errno.ELOOP, errno.EROFS, errno.EINVAL}


def carried_out(
    app: typer.Typer,
    arguments: Sequence[str],
    program: str,
    mistakes: tuple[type[Exception], ...] = (),
) -> int:
    """Run a command line; return its exit code: the command's own, 1 (it failed), 2 (a mistake in
    what was typed), 130 (interrupted).

    What went wrong is one line on stderr. ``--traceback`` anywhere on the command line shows where
    it came from.

    Args:
        mistakes: further errors that count as the user's.
    """
    try:
        code = app(
            [a for a in arguments if a != _TRACEBACK], prog_name=program, standalone_mode=False
        )
        return code if isinstance(code, int) else DONE
    except Exception as error:
        if _TRACEBACK in arguments:
            traceback.print_exc()
        print(f"error: {_line(_told(error, mistakes))}", file=sys.stderr)
        return MISTAKE if _is_mistake(error, mistakes) else FAILURE


def _is_mistake(error: Exception, mistakes: tuple[type[Exception], ...]) -> bool:
    if isinstance(error, OSError) and not isinstance(error, mistakes):
        return isinstance(error, _PLACES) or error.errno in _NO_PLACE
    return isinstance(error, (ValueError, typer.TyperException, *mistakes)) and not isinstance(
        error, _RUNNING
    )


def _told(error: Exception, mistakes: tuple[type[Exception], ...]) -> str:
    text = error.format_message() if hasattr(error, "format_message") else str(error)
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    if out_of_memory(error):
        return (
            "the memory is too small for this: make sizes, batches or jobs smaller"
            f" ({text or 'MemoryError'})"
        )
    if isinstance(error, RecursionError):
        return f"something is nested too deeply: make it flatter ({text})"
    if isinstance(error, typer.Abort):
        return "aborted"
    if isinstance(error, (ValueError, RuntimeError, OSError, typer.TyperException, *mistakes)):
        return text or type(error).__name__
    return f"a fault of this program, {type(error).__name__}: {text} ({_TRACEBACK} shows where)"


def _line(text: str) -> str:
    """The text in one line of printable characters; of a longer one than LONGEST the beginning and
    the end.
    """
    line = " ".join(text.split())
    if len(line) > LONGEST:
        line = f"{line[: LONGEST - 305]} ... {line[-300:]}"
    return printable(line)
