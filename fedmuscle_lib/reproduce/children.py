"""The child processes: one a notebook, its lines passed on as they come, and an end to all of them."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nbformat

from fedmuscle_lib.core.files import ROOT, write
from fedmuscle_lib.reproduce import child

_PARTING = "KeyboardInterrupt caught in kernel"  # jupyter_client interrupts a kernel before it ends it, which some then report

SENTENCES = "sentences.json"  # kept beside a folder's tables and figures: what no CSV file holds

_log = logging.getLogger("fedmuscle")


@dataclass(frozen=True)
class Outcome:
    """How a notebook's execution ended.

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
        threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(cores))
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))  # this library, not another installed one
        self._sockets = TemporaryDirectory(prefix="fm-")
        own = {"PYTHONPATH": path, "JUPYTER_RUNTIME_DIR": self._sockets.name, "FEDMUSCLE_PROGRESS": "lines"}  # nobody sees a bar
        self.environment = os.environ | threads | own | dict(environment)
        self.environment.pop("MPLBACKEND", None)  # the kernel's own shows figures in the notebook
        if runs := self.environment.get("FEDMUSCLE_RUNS"):
            self.environment["FEDMUSCLE_RUNS"] = str(Path(runs).absolute())  # a child runs in its notebook's folder
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
                [sys.executable, "-P", child.__file__, json.dumps(spec)],
                cwd=cwd,
                env=self.environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                encoding="utf8",
                errors="replace",
                start_new_session=True,  # Ctrl-C reaches this process alone, which then ends them in order
            )
            self._running.add(started)
        return started

    def end(self) -> None:
        """Interrupt them, so that they shut their kernels down, and kill what has not ended in time."""
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
        self._sockets.cleanup()


def execute(path: Path, folder: Path, parameters: dict[str, Any], children: Children) -> Outcome:
    """Run the notebook ``path`` into ``folder``; write how it went to ``result.json`` there and return it.

    What its cells say in Markdown is written to ``sentences.json``, by the cell's id.

    Raises:
        KeyboardInterrupt: all children are being ended; then the folder is as it was.
    """
    folder.mkdir(parents=True, exist_ok=True)
    part, executed, said = folder / "executed.part.ipynb", folder / "executed.ipynb", folder / SENTENCES
    earlier = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    for left in (part, part.with_suffix(".html")):  # by an execution that failed or was killed
        left.unlink(missing_ok=True)
    started = time.monotonic()
    # relative paths, because papermill writes them into the notebook
    spec = {"notebook": path.name, "part": os.path.relpath(part, path.parent), "parameters": parameters, "parent": os.getpid()}
    try:
        code, tail = _followed(children.start(spec, cwd=path.parent), folder.name, children)
    except KeyboardInterrupt:
        _restore(folder, earlier)
        raise
    missing = _error(part) if code == child.NOT_STORED else None
    failure = _diagnosis(path, part, code, tail) if code and not missing else None
    for done in (executed, executed.with_suffix(".html")):
        if code:
            done.unlink(missing_ok=True)  # of an earlier run
        elif (fresh := done.with_suffix(f".part{done.suffix}")).exists():
            os.replace(fresh, done)
    if sentences := {} if code else _sentences(executed):
        write(said, json.dumps(sentences, indent=1, ensure_ascii=False))
    elif not missing:  # then nothing was written, and what lies there is an earlier execution's
        said.unlink(missing_ok=True)
    seconds, finished = round(time.monotonic() - started, 1), datetime.now(UTC).isoformat(timespec="seconds")
    outcome = Outcome(folder.name, parameters, seconds, finished, failure, missing)
    write(folder / "result.json", json.dumps(asdict(outcome), indent=1))
    return outcome


def _sentences(executed: Path) -> dict[str, str]:
    """What cells say of the results in Markdown, by the cell's id."""
    said: dict[str, str] = {}
    for cell in nbformat.read(executed, as_version=4).cells:
        if texts := [output.data["text/markdown"] for output in cell.get("outputs", []) if "text/markdown" in output.get("data", {})]:
            said[cell.id] = "\n\n".join(texts)
    return said


def _followed(process: subprocess.Popen[str], name: str, children: Children) -> tuple[int, Sequence[str]]:
    """Pass a child's lines on; return its exit code and the last lines.

    Raises:
        KeyboardInterrupt: it was ended before it was done.
    """
    tail: deque[str] = deque(maxlen=20)
    for line in process.stdout or ():
        if line := line.rstrip():
            tail.append(line)
            if not children.ending and _PARTING not in line:
                _log.info("%s: %s", name, line)
    code = process.wait()  # what counts: a kernel that was killed leaves no exception in the notebook
    if code and children.ending:
        raise KeyboardInterrupt
    return code, tail


def _restore(folder: Path, earlier: Mapping[Path, bytes]) -> None:
    """Give a folder the files that it had."""
    for file in [file for file in folder.rglob("*") if file.is_file()]:
        if file not in earlier:
            file.unlink()
    for file, content in earlier.items():
        if not file.exists() or file.read_bytes() != content:
            file.write_bytes(content)
    if not earlier:
        shutil.rmtree(folder)


def _diagnosis(path: Path, part: Path, code: int, tail: Sequence[str]) -> str:
    """Where and why a notebook failed: the cell by its place in the notebook's source, and its error or the child's last words."""
    last = tail[-1] if tail else "no output"
    started = _started(part) if code == child.IN_A_CELL else []
    if not started:
        return f"exit code {code}: {last}"
    cell = started[-1]  # papermill goes no further, and calls the cell that a kernel died in completed
    places = {cell.id: place for place, cell in enumerate(nbformat.read(path, as_version=4).cells, start=1)}
    place = f"cell {places[cell.id]}" if cell.id in places else "the injected parameters"
    head = next((line.strip() for line in cell.source.splitlines() if line.strip() and not line.startswith("#")), "")
    errors = [f"{output.ename}: {output.evalue}" for output in cell.outputs if output.output_type == "error"]
    return f"{place} ({head}): {errors[0] if errors else last}"


def _error(part: Path) -> str:
    """What the last cell that was started raised, in its own words."""
    outputs = [output for cell in _started(part) for output in cell.outputs]
    return next((output.evalue for output in reversed(outputs) if output.output_type == "error"), "")


def _started(part: Path) -> list[Any]:
    """The code cells of a notebook in execution that were begun."""
    if not part.exists():
        return []
    cells = nbformat.read(part, as_version=4).cells
    return [cell for cell in cells if cell.cell_type == "code" and cell.metadata.get("papermill", {}).get("start_time")]
