"""The way in and out of the command line, ``python -m fedmuscle_lib``.

What a person can get wrong ends in one line and exit code 2; ``--traceback`` shows where it came from.
"""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Sequence

import typer

from fedmuscle_lib.cli import app
from fedmuscle_lib.runs import Busy, NotStored


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return the exit code: 0, 1 (a notebook failed, a run differs), 2 (a mistake, told in one line), 130 (interrupted)."""
    arguments = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    whole = "--traceback" in arguments
    logger = logging.getLogger("fedmuscle")
    logger.setLevel(logging.INFO)
    logger.addHandler(handler := logging.StreamHandler())
    try:
        code = app([a for a in arguments if a != "--traceback"], prog_name="python -m fedmuscle_lib", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except (ValueError, Busy, NotStored, OSError, typer.TyperException) as error:
        if whole:
            traceback.print_exc()
        print(f"error: {_told(error)}", file=sys.stderr)
        return 2
    finally:
        logger.removeHandler(handler)


def _told(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    text = error.format_message() if hasattr(error, "format_message") else str(error)
    return " ".join(text.split())


if __name__ == "__main__":
    sys.exit(main())
