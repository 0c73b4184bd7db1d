"""Command lines: no value is empty, a path may begin with ``~``, and what failed is one line."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence

import typer

from fedmuscle_lib.core.errors import Diverged, Kinds, RefusedMessage, line_of, out_of_memory

DONE, FAILURE, MISTAKE = 0, 1, 2  # what was begun failed; what was typed can't be done
INTERRUPTED = 130  # typer's
_LONGEST = 1000  # characters of the line
_TRACEBACK = "--traceback"


def carried_out(
    app: typer.Typer,
    arguments: Sequence[str],
    program: str,
    mistakes: Kinds = (),
) -> int:
    """Run a command line; return its exit code: the command's own, 1 (it failed), 2 (a mistake in
    what was typed), 130 (interrupted).

    What went wrong is one line on stderr. ``--traceback`` anywhere on the command line shows where
    it came from.

    Args:
        mistakes: further errors that count as the user's.
    """
    mistakes = (ValueError, OSError, typer.TyperException, *mistakes)
    given = [text for text in arguments if text != _TRACEBACK]
    try:
        for text in given:  # as a variable of the shell gives that is not set
            if not text or text.startswith("--") and text.endswith("="):
                raise ValueError(f"{text.rstrip('=') or 'an argument'}: the value is empty")
        code = app(list(map(_at_home, given)), prog_name=program, standalone_mode=False)
        return code if isinstance(code, int) else DONE
    except Exception as error:
        if _TRACEBACK in arguments:
            traceback.print_exc()
        print(f"error: {line_of(_text(error, mistakes), _LONGEST)}", file=sys.stderr)
        # nobody typed what diverged or what another party sent
        mistaken = isinstance(error, mistakes) and not isinstance(error, Diverged | RefusedMessage)
        return MISTAKE if mistaken else FAILURE


def _at_home(argument: str) -> str:
    """The argument with the home folder for ``~`` behind "=", where no shell puts it."""
    name, equals, value = argument.partition("=")
    return f"{name}{equals}{os.path.expanduser(value)}"


def _text(error: Exception, mistakes: Kinds) -> str:
    text = error.format_message() if isinstance(error, typer.TyperException) else str(error)
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    if out_of_memory(error):
        return f"the memory is too small for this: make sizes, batches or jobs smaller ({text})"
    if isinstance(error, (*mistakes, RuntimeError)):
        return text or type(error).__name__
    return f"a fault of this program, {type(error).__name__}: {text} ({_TRACEBACK} shows where)"
