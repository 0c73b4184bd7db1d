"""The program of a notebook's process: execute it in the current folder and write its pages.

It imports no torch; its kernel does that.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path
from tempfile import gettempdir
from typing import Any

from jupyter_client import AsyncKernelManager

from fedmuscle_lib.core.errors import line_of
from fedmuscle_lib.core.files import write
from fedmuscle_lib.core.notebooks import OUTCOME
from fedmuscle_lib.reproduce.pages import EXECUTED, PART, export


class _Relay(logging.StreamHandler[Any]):
    """Print what cells print, each line after the name of the notebook's folder; papermill's own
    remarks, and the text forms of displayed tables, end no line.
    """

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.levelno > logging.INFO or text.endswith("\n"):
            for line in filter(str.strip, text.splitlines()):
                print(f"{self.name}: {line}", file=self.stream, flush=True)


class _Sockets(AsyncKernelManager):
    """A kernel that nobody on the network can reach, and that races nobody for ports."""

    def __init__(self, **options: Any) -> None:
        super().__init__(transport="ipc", ip=f"{gettempdir()}/fm-{os.getpid()}", **options)


def main(notebook: str, folder: str, parameters: dict[str, Any], parent: int) -> None:
    """Execute ``notebook`` into ``folder``, and write there how it went.

    Paths are relative, because papermill writes them into the notebook.
    """
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    import papermill  # seconds, for which the thread does not wait

    place, started = Path(folder), time.monotonic()
    relay = _Relay(os.fdopen(os.dup(2), "w"))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what libraries say when they are interrupted
    relay.name = place.name
    logging.basicConfig(level=logging.INFO, handlers=[relay])
    failure = missing = None
    try:
        papermill.execute_notebook(
            notebook,
            os.path.join(folder, PART),
            parameters,
            log_output=True,
            progress_bar=False,
            kernel_name="python3",
            language="python",
            kernel_manager_class=_Sockets,
        )
        os.replace(place / PART, place / EXECUTED)
        export(place / EXECUTED, Path())
    except papermill.PapermillExecutionError as error:
        if error.ename == "NotStored":
            missing = error.evalue
        else:
            failure = f"cell {error.cell_index}: {error.ename}: {error.evalue}"
    except Exception as error:  # a dead kernel, a full disk
        failure = f"{type(error).__name__}: {error}"
    result = {
        "notebook": place.name,
        "parameters": parameters,
        "seconds": round(time.monotonic() - started, 1),
        "finished": time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime()),
        "failure": failure and line_of(failure),
        "missing": missing,
    }
    if os.getppid() == parent:  # else it was not the notebook that failed
        write(place / OUTCOME, json.dumps(result, indent=1))


def _end_with(parent: int) -> None:
    """Interrupt this process when its parent is gone, and end it if that is not enough; its kernel
    watches it.
    """
    while os.getppid() == parent:
        time.sleep(1)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(15)
    os._exit(1)


if __name__ == "__main__":
    try:
        main(*json.loads(sys.argv[1]))
    except KeyboardInterrupt:
        sys.exit(130)
