"""The program of one child process: execute a notebook in the current folder and write it down.

``children`` runs this file by its path, so that a child starts without importing torch and the rest
of the library; its kernel does that.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import sys
import threading
import time
from typing import Any

from jupyter_client import AsyncKernelManager

PATIENCE = 15  # seconds that an interrupted child has to shut its kernel down


class _UnixSockets(AsyncKernelManager):
    """A kernel that nobody on the network can reach, and that races nobody for ports."""

    def __init__(self, **options: Any) -> None:
        super().__init__(
            transport="ipc",
            ip=os.path.join(os.environ["JUPYTER_RUNTIME_DIR"], str(os.getpid())),
            **options,
        )


def main(spec: dict[str, Any]) -> int:
    """Execute ``spec["notebook"]`` with ``spec["parameters"]`` into ``spec["part"]``, which holds
    the error if this returns 1.
    """
    # seconds; the parent, which imports this module for its constant, does without
    import papermill

    threading.Thread(
        target=_end_with_parent, args=(spec["parent"], spec["scratch"]), daemon=True
    ).start()
    logging.basicConfig(format="%(message)s", level=logging.INFO, stream=sys.stdout)
    logging.getLogger("papermill").addFilter(_was_printed)
    options: dict[str, Any] = {
        "log_output": True,
        "progress_bar": False,
        "cwd": ".",
        "kernel_name": "python3",
        "language": "python",
    }
    if len(os.environ["JUPYTER_RUNTIME_DIR"]) < 80:  # a socket's path has at most 104 characters
        options["kernel_manager_class"] = _UnixSockets
    try:
        papermill.execute_notebook(
            spec["notebook"], spec["part"], parameters=spec["parameters"], **options
        )
    except papermill.PapermillExecutionError:
        return 1
    except Exception as error:  # a dead kernel, a full disk
        print(f"{type(error).__name__}: {' '.join(str(error).split())}", flush=True)
        return 1
    return 0


def _was_printed(record: logging.LogRecord) -> bool:
    """Return whether a cell printed this: then it ends a line, unlike papermill's remarks and the
    text forms of displayed tables.
    """
    return record.levelno > logging.INFO or str(record.msg).endswith("\n")


def _end_with_parent(parent: int, scratch: str) -> None:
    """Interrupt this process when its parent is gone, as if by Ctrl-C, and leave nothing of its
    scratch if that is not enough.
    """
    while os.getppid() == parent:
        time.sleep(1)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(PATIENCE)
    shutil.rmtree(scratch, ignore_errors=True)
    os._exit(1)


if __name__ == "__main__":
    spec = json.loads(sys.argv[1])
    try:
        sys.exit(main(spec))
    finally:
        if os.getppid() != spec["parent"]:  # which would have removed it
            shutil.rmtree(spec["scratch"], ignore_errors=True)
