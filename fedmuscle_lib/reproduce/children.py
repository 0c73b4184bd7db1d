"""The child processes: one a notebook, its lines passed on as they come, and an end to all of
them.
"""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fedmuscle_lib.core.errors import line_of
from fedmuscle_lib.core.files import put, python_path, user_path, write
from fedmuscle_lib.core.notebooks import OUTCOME, PROVENANCE
from fedmuscle_lib.core.ownership import refuse_others
from fedmuscle_lib.reproduce import child, pages

_PARTING = (  # jupyter_client interrupts a kernel before it ends it, which some then report
    "KeyboardInterrupt caught in kernel"
)
_EXECUTED, _PART = "executed.ipynb", "executed.part.ipynb"  # in a notebook's folder
LOG = "executed.log"  # likewise: the output of a child that failed
_KINDS = {
    ".csv",
    ".svg",
    ".png",
    ".json",
    ".ipynb",
    ".html",
    ".md",
    ".log",
}  # of files that notebooks leave there
_KEPT, _LONGEST = 1000, 500  # lines of the log, and characters of the one that is shown
_NAMES_ERROR = re.compile(r"[A-Za-z_][\w.]*(Error|Exception|Interrupt|Exit)\b")
_log = logging.getLogger("fedmuscle")


@dataclass(frozen=True)
class Outcome:
    """The end of a notebook's execution.

    Attributes:
        notebook: its name or, where it has several, that of its folder of results.
        parameters: what it was given.
        seconds: how long it took.
        finished: when it ended, in UTC.
        failure: where and why it failed, or None.
        missing: which of its runs are not stored, where none may be computed, or None.
    """

    notebook: str
    parameters: dict[str, Any]
    seconds: float
    finished: str
    failure: str | None = None
    missing: str | None = None


class Children:
    """The processes in flight, and an end to all of them.

    Args:
        cores: that each may use.
        environment: of theirs, beside this process's.
    """

    def __init__(self, cores: int, environment: dict[str, str]) -> None:
        self._scratch = TemporaryDirectory(prefix="fm-")  # also of what a killed kernel leaves
        threads = dict.fromkeys(
            ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(cores)
        )
        places = dict.fromkeys(("JUPYTER_RUNTIME_DIR", "TMPDIR", "TEMP", "TMP"), self._scratch.name)
        own = {"PYTHONPATH": python_path(), "FEDMUSCLE_PROGRESS": "lines"}  # nobody sees a bar
        self.environment = os.environ | threads | places | own | environment
        self.environment.pop("MPLBACKEND", None)  # the kernel's own shows figures in the notebook
        if runs := self.environment.get("FEDMUSCLE_RUNS"):
            self.environment["FEDMUSCLE_RUNS"] = str(
                user_path(runs, "FEDMUSCLE_RUNS").absolute()
            )  # a child runs in its notebook's folder
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[str]] = set()
        self.ending = False

    def start(self, spec: dict[str, Any], cwd: Path) -> subprocess.Popen[str]:
        """A process that runs ``child.main(spec)`` in the folder ``cwd``.

        Raises:
            KeyboardInterrupt: all of them are being ended.
        """
        with self._lock:
            if self.ending:
                raise KeyboardInterrupt
            started = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    child.__file__,
                    json.dumps(spec | {"scratch": self._scratch.name}),
                ],
                cwd=cwd,
                env=self.environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                encoding="utf8",
                errors="replace",
                # Ctrl-C reaches this process alone, which then ends them in order
                start_new_session=True,
            )
            self._running.add(started)
        return started

    def end(self) -> None:
        """Interrupt them, so that they shut their kernels down, and kill what has not ended in
        time.
        """
        with self._lock:
            self.ending = True
            alive = [process for process in self._running if process.poll() is None]
        for process in alive:
            process.send_signal(signal.SIGINT)
        for process in alive:
            try:
                process.wait(child.PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()

    def clean(self) -> None:
        """Remove what they left behind."""
        self._scratch.cleanup()


def execute(path: Path, folder: Path, parameters: dict[str, Any], children: Children) -> Outcome:
    """Run the notebook ``path`` into ``folder``; write how it went to ``result.json`` there and
    return it.

    Raises:
        KeyboardInterrupt: all children are being ended; then the folder's results are as they were.
    """
    claim(folder)
    before = {place.name: place.read_bytes() for place in _files(folder)}
    folder.mkdir(parents=True, exist_ok=True)
    try:
        return _execute(path, folder, parameters, children)
    except KeyboardInterrupt:
        for place in _files(folder):
            if place.name not in before and place.suffix in _KINDS:
                place.unlink()
        with suppress(OSError):  # it is not empty
            folder.rmdir()
        for name, content in before.items():
            put(folder / name, content)
        raise


def claim(folder: Path) -> None:
    """Check that a folder of results is free, or one that a notebook wrote: a result, a provenance
    or an executed notebook lies there.

    Raises:
        NotOurs: it holds something else.
    """
    ours = any((folder / name).is_file() for name in (PROVENANCE, OUTCOME, _EXECUTED, _PART))
    refuse_others(folder, ours)


def _files(folder: Path) -> list[Path]:
    return [place for place in folder.glob("*") if place.is_file() and not place.is_symlink()]


def _execute(path: Path, folder: Path, parameters: dict[str, Any], children: Children) -> Outcome:
    part, executed = folder / _PART, folder / _EXECUTED
    part.unlink(missing_ok=True)  # by an execution that failed or was killed
    started = time.monotonic()
    # relative paths, because papermill writes them into the notebook
    spec = {
        "notebook": path.name,
        "part": os.path.relpath(part, path.parent),
        "parameters": parameters,
        "parent": os.getpid(),
    }
    failure, missing = _faults(
        path, part, *_followed(children.start(spec, cwd=path.parent), folder, children)
    )
    if not (failure or missing):
        os.replace(part, executed)
        pages.export(executed, path.parent)
    seconds, finished = (
        round(time.monotonic() - started, 1),
        datetime.now(UTC).isoformat(timespec="seconds"),
    )
    outcome = Outcome(folder.name, parameters, seconds, finished, failure, missing)
    write(folder / OUTCOME, json.dumps(asdict(outcome), indent=1))
    return outcome


def _followed(process: subprocess.Popen[str], folder: Path, children: Children) -> tuple[int, str]:
    """Pass a child's lines on; return its exit code and the line that says most about its end. All
    are in ``LOG`` if it failed.

    Raises:
        KeyboardInterrupt: it was ended before it was done.
    """
    lines: deque[str] = deque(maxlen=_KEPT)
    for line in filter(None, map(str.rstrip, process.stdout or ())):
        lines.append(line)
        if not children.ending and _PARTING not in line:
            _log.info("%s: %s", folder.name, line)
    code = process.wait()
    if code and children.ending:
        raise KeyboardInterrupt
    (folder / LOG).unlink(missing_ok=True)
    if code:
        write(folder / LOG, "\n".join(lines) + "\n")
    return code, _telling(lines)


def _telling(lines: Sequence[str]) -> str:
    """The line that names the last error or, without one, the last line with a word."""
    for pattern in (_NAMES_ERROR, re.compile(r"\w")):
        if found := [line for line in lines if pattern.match(line.strip())]:
            return line_of(found[-1].strip(), _LONGEST)
    return "no output"


def _faults(path: Path, part: Path, code: int, last: str) -> tuple[str | None, str | None]:
    """Return why the notebook failed, or which of its runs are missing: by the last cell begun or,
    without one, the child's last line.
    """
    if not code:
        return None, None
    import nbformat  # seconds, which a notebook that imports this package need not wait for

    cells: Sequence[Any] = []
    with suppress(OSError, ValueError):  # there is no notebook, or half of one
        cells = [
            cell
            for cell in nbformat.read(part, as_version=4).cells
            if cell.metadata.get("papermill", {}).get("start_time")
        ]
    if code != 1 or not cells:
        return f"exit code {code}: {last} (all of its output: {part.with_name(LOG)})", None
    cell = cells[
        -1
    ]  # papermill goes no further, and calls the cell that a kernel died in completed
    error = next(
        (output for output in cell.get("outputs", []) if output.output_type == "error"), None
    )
    if error and error.ename == "NotStored":
        return None, error.evalue
    places = {
        known.id: place
        for place, known in enumerate(nbformat.read(path, as_version=4).cells, start=1)
    }
    place = f"cell {places[cell.id]}" if cell.id in places else "the injected parameters"
    head = next(
        (
            line.strip()
            for line in cell.source.splitlines()
            if line.strip() and not line.startswith("#")
        ),
        "",
    )
    return (
        (
            f"{place} ({head}):"
            f" {line_of(f'{error.ename}: {error.evalue}', _LONGEST) if error else last}"
        ),
        None,
    )
