"""Exit codes of commands and, where one failed, the line that says why."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence

import typer

from fedmuscle_lib.core.errors import Diverged, RefusedMessage, line_of, out_of_memory

DONE, FAILURE, MISTAKE = 0, 1, 2  # what was begun failed; what was typed can't be done
INTERRUPTED = 130  # typer's
LONGEST = 1000  # characters of the line
_TRACEBACK = "--traceback"
_MISTAKES = (
    ValueError,
    typer.TyperException,
    FileNotFoundError,
    FileExistsError,
    NotADirectoryError,
    IsADirectoryError,
    PermissionError,
)


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
        print(f"error: {line_of(_text(error, mistakes), LONGEST)}", file=sys.stderr)
        # nobody typed what diverged or what another party sent
        mistaken = isinstance(error, (*_MISTAKES, *mistakes))
        return MISTAKE if mistaken and not isinstance(error, Diverged | RefusedMessage) else FAILURE


def _text(error: Exception, mistakes: tuple[type[Exception], ...]) -> str:
    text = error.format_message() if hasattr(error, "format_message") else str(error)
    text = text or type(error).__name__
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    if out_of_memory(error):
        return f"the memory is too small for this: make sizes, batches or jobs smaller ({text})"
    if isinstance(error, (*_MISTAKES, RuntimeError, OSError, *mistakes)):
        return text
    return f"a fault of this program, {type(error).__name__}: {text} ({_TRACEBACK} shows where)"
