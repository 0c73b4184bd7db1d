"""The way in and out of the command line, ``python -m fedmuscle_lib``."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return the exit code of ``carried_out``.

    A notebook that failed and a run that differs are 1 too.
    """
    from fedmuscle_lib.core.command_line import INTERRUPTED, carried_out

    arguments = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    try:
        if arguments[0] == "certificates":  # the command that needs no torch
            from fedmuscle_lib.cli.certificates import app
        else:
            from fedmuscle_lib.cli.commands import app
    except KeyboardInterrupt:  # torch takes seconds to import
        return INTERRUPTED
    logger = logging.getLogger("fedmuscle")
    logger.setLevel(logging.INFO)
    logger.addHandler(handler := logging.StreamHandler())
    try:
        return carried_out(app, arguments, "python -m fedmuscle_lib")
    finally:
        logger.removeHandler(handler)


if __name__ == "__main__":
    sys.exit(main())
