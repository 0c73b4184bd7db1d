"""The program of one child process: execute a notebook in the current folder, write it down, export it as HTML.

``children`` runs this file by its path, so that a child starts without importing torch and the rest of the library; its kernel does that.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from jupyter_client import AsyncKernelManager

IN_A_CELL = 3  # exit code: a cell failed, or its kernel died; any code but this, the next and 0 is the child's own failure
NOT_STORED = 4  # exit code: the notebook's runs are not stored, and this process may compute none
PATIENCE = 15  # seconds that an interrupted child has to shut its kernel down


class _UnixSockets(AsyncKernelManager):
    """A kernel that nobody on the network can reach, and that races nobody for ports."""

    def __init__(self, **options: Any) -> None:
        super().__init__(transport="ipc", ip=os.path.join(os.environ["JUPYTER_RUNTIME_DIR"], str(os.getpid())), **options)


def main(spec: dict[str, Any]) -> int:
    """Execute ``spec["notebook"]`` with ``spec["parameters"]`` into ``spec["part"]``; return the exit code."""
    import papermill  # seconds; the parent, which imports this module for its constants, does without

    threading.Thread(target=_end_with_parent, args=(spec["parent"],), daemon=True).start()
    logging.basicConfig(format="%(message)s", level=logging.INFO, stream=sys.stdout)
    logging.getLogger("papermill").addFilter(_was_printed)
    if short := len(os.environ["JUPYTER_RUNTIME_DIR"]) < 50:  # a socket's path has at most 104 characters
        _keep_together(_scratch())
    try:
        papermill.execute_notebook(
            spec["notebook"],
            spec["part"],
            parameters=spec["parameters"],
            log_output=True,
            progress_bar=False,
            cwd=".",
            **({"kernel_manager_class": _UnixSockets} if short else {}),
        )
    except papermill.PapermillExecutionError as error:  # the notebook holds it
        return NOT_STORED if error.ename == "NotStored" else IN_A_CELL
    except Exception as error:  # a dead kernel, a full disk: the parent reports whatever it is
        return _last_words(error, IN_A_CELL)
    try:
        _export(Path(spec["part"]))
    except OSError as error:
        return _last_words(error, 1)
    return 0


def _scratch() -> str:
    """The folder of this process's temporary files and its kernel's, which a kernel that is killed leaves behind."""
    return os.path.join(os.environ["JUPYTER_RUNTIME_DIR"], str(os.getpid()))


def _keep_together(folder: str) -> None:
    """Have temporary files made in ``folder``, by this process and by those that it starts."""
    os.mkdir(folder)
    os.environ |= dict.fromkeys(("TMPDIR", "TEMP", "TMP"), folder)
    tempfile.tempdir = None  # look it up again


def _last_words(error: Exception, code: int) -> int:
    print(f"{type(error).__name__}: {str(error).strip()}", flush=True)
    return code


def _was_printed(record: logging.LogRecord) -> bool:
    """Whether a cell printed this: then it ends a line, unlike papermill's remarks and the text forms of displayed tables."""
    return record.levelno > logging.INFO or str(record.msg).endswith("\n")


def _end_with_parent(parent: int) -> None:
    """Interrupt this process when its parent is gone, as if by Ctrl-C, and leave nothing behind if that is not enough."""
    while os.getppid() == parent:
        time.sleep(1)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(PATIENCE)
    shutil.rmtree(os.environ["JUPYTER_RUNTIME_DIR"], ignore_errors=True)
    os._exit(1)


def _export(notebook: Path) -> None:
    from nbconvert import HTMLExporter  # half a second that a failed notebook need not wait for

    logging.getLogger("traitlets").setLevel(logging.ERROR)  # it would miss alternative texts
    text, _ = HTMLExporter(embed_images=True).from_filename(str(notebook))
    notebook.with_suffix(".html").write_text(text, encoding="utf8")


if __name__ == "__main__":
    try:
        sys.exit(main(spec := json.loads(sys.argv[1])))
    finally:
        shutil.rmtree(_scratch(), ignore_errors=True)
        if os.getppid() != spec["parent"]:  # which would have removed it
            with suppress(OSError):  # of others that still end
                os.rmdir(os.environ["JUPYTER_RUNTIME_DIR"])
