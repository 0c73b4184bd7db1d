"""The grid: the chosen notebooks, some at a time, into one folder with an index page."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedmuscle_lib.core.files import ROOT, python_path, read_json, user_path
from fedmuscle_lib.core.notebooks import FIGURES, NOTEBOOKS, OUTCOME, PROVENANCE
from fedmuscle_lib.core.ownership import refuse_other_file, refuse_others
from fedmuscle_lib.reproduce.estimate import announcement
from fedmuscle_lib.reproduce.index import START, index
from fedmuscle_lib.reproduce.pages import EXECUTED, PART
from fedmuscle_lib.reproduce.plan import ALL, folder_of, in_reference, plan, select

PATIENCE = 15  # seconds that an interrupted child has to shut its kernel down
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


def reproduce(
    notebooks: Sequence[str] | None = None,
    profile: str = "mini",
    seeds: Sequence[int] | None = None,
    jobs: int = 2,
    output: Path = Path("results"),
    overrides: dict[str, Any] | None = None,
    *,
    shipped_only: bool = False,
    first_public: bool = False,
    scheduler: str | None = None,
    folder: Path = NOTEBOOKS,
    reference: Path = FIGURES,
) -> list[Outcome]:
    """Execute notebooks, ``jobs`` at a time, into ``<output>/<profile>/<folder>/executed.ipynb``,
    and write the index page.

    A notebook's folder has its name, followed by parameters that are neither the notebook's own nor
    the reference's, such as ``table7_rounds=5`` or ``controls_setup1_vit``. What is about to run,
    and for how long, goes to the logger "fedmuscle" first. What cells print goes to stderr.

    A notebook that fails does not keep the others from running; it, and one that lacks a run, keeps
    the pages that it had. Runs that were finished or interrupted here before are fetched or
    resumed; all others are computed, also those that came with the repository.

    Args:
        notebooks: names, files such as ``study/depth.ipynb``, or "all"; by default the core or,
            with ``shipped_only``, all of the folder's.
        profile: for every notebook that has such a parameter.
        seeds: likewise; by default [0] or, with ``shipped_only``, those of the reference.
        overrides: parameters of notebooks by name, and settings, which go into a notebook's own
            parameter ``overrides``.
        shipped_only: compute nothing. Runs that came with the repository are shown too. Without
            seeds and overrides a notebook is drawn once for each folder that its reference has,
            with the folder's parameters; with any, once, with the reference's where none are given.
            One of which a run is not stored is reported as missing.
        first_public: of a notebook's several public sets, take the first.
        scheduler: address of a Dask scheduler, such as ``tcp://host:8786``, whose workers compute
            the runs.
        folder: where the notebooks are.
        reference: where their committed results are.

    Raises:
        ValueError: an unknown notebook, a misspelt parameter or one of another type, a folder that
            is not there, or a scheduler that can't be reached; nothing has run then.
        NotOurs: something else lies in the place of a notebook's folder or of the index page;
            nothing has run then.
        OSError: the output folder can't be written.
    """
    target = Path(output).resolve() / profile
    common: dict[str, Any] = {"profile": profile, "output": str(output)}
    if seeds is not None or not shipped_only:
        common["seeds"] = list(seeds or [0])
    chosen = select(notebooks or ([ALL] if shipped_only else None), folder)
    planned = []
    for path, given in plan(chosen, common, overrides or {}, first_public).items():
        made = in_reference(path, reference / profile, given) if shipped_only else [given]
        planned += [(path, parameters | _output(path, parameters, target)) for parameters in made]
    for path, given in planned:
        own = target / folder_of(path, given)
        ours = any((own / name).is_file() for name in (PROVENANCE, OUTCOME, EXECUTED, PART))
        refuse_others(own, ours)
    refuse_other_file(target / "index.html", START)
    if scheduler:
        _try_to_reach(scheduler)
    target.mkdir(parents=True, exist_ok=True)
    at_a_time = min(jobs, len(planned))
    if not shipped_only:
        for line in announcement(planned, reference / profile, min(at_a_time, _cores())):
            _log.info(line)

    environment = _environment(max(1, _cores() // at_a_time), shipped_only, scheduler)
    outcomes: list[Outcome] = []
    running: dict[subprocess.Popen[bytes], tuple[Path, dict[str, Any]]] = {}
    try:
        while planned or running:
            while planned and len(running) < at_a_time:
                path, given = planned.pop(0)
                (own := target / folder_of(path, given)).mkdir(exist_ok=True)
                running[_started(path, own, given, environment)] = own, given
            time.sleep(0.2)
            for process in [process for process in running if process.poll() is not None]:
                outcomes.append(outcome := _outcome(process.returncode, *running.pop(process)))
                if outcome.failure:
                    _log.error("%s: failed: %s", outcome.notebook, outcome.failure)
                index(target)
    except KeyboardInterrupt:
        _log.warning("Interrupted; finished rounds are kept, and the same command resumes")
        raise
    finally:
        _end(running)
        for own, _ in running.values():
            (own / OUTCOME).unlink(missing_ok=True)  # which would call the interrupt a failure
        index(target)
    return outcomes


def _output(path: Path, given: dict[str, Any], target: Path) -> dict[str, Any]:
    """The parameter output of a notebook that has one: relative, since a page shows it."""
    return {"output": os.path.relpath(target.parent, path.parent)} if "output" in given else {}


def _environment(cores: int, shipped_only: bool, scheduler: str | None) -> dict[str, str]:
    """The environment of children that use so many cores each, or as many as the user says."""
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(cores)),
        "PYTHONPATH": python_path(),
        "FEDMUSCLE_PROGRESS": "lines",  # nobody sees a bar
        "FEDMUSCLE_SHIPPED": "1" if shipped_only else "0",
        "FEDMUSCLE_ROOT": str(ROOT),  # of an installed package
    }
    environment.pop("MPLBACKEND", None)  # the kernel's own shows figures in the notebook
    environment |= {"FEDMUSCLE_COMPUTE": "0"} if shipped_only else {}
    environment |= {"FEDMUSCLE_SCHEDULER": scheduler} if scheduler else {}
    if runs := environment.get("FEDMUSCLE_RUNS"):  # a child runs in its notebook's folder
        environment["FEDMUSCLE_RUNS"] = str(user_path(runs, "FEDMUSCLE_RUNS").absolute())
    return environment


def _started(
    path: Path, own: Path, given: dict[str, Any], environment: dict[str, str]
) -> subprocess.Popen[bytes]:
    spec = [path.name, os.path.relpath(own, path.parent), given, os.getpid()]
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "fedmuscle_lib.reproduce.child", json.dumps(spec)],
        cwd=path.parent,
        env=environment,
        start_new_session=True,  # Ctrl-C reaches this process alone, which then ends them in order
    )


def _outcome(code: int, own: Path, given: dict[str, Any]) -> Outcome:
    if code == 0:
        return Outcome(**read_json(own / OUTCOME))
    (own / OUTCOME).unlink(missing_ok=True)  # an earlier one
    return Outcome(own.name, given, 0.0, "", f"its process ended with exit code {code}")


def _end(running: Iterable[subprocess.Popen[bytes]]) -> None:
    """Interrupt children, so that they shut their kernels down; kill those that don't in time."""
    for process in running:
        process.send_signal(signal.SIGINT)
    for process in running:
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()


def _try_to_reach(scheduler: str) -> None:
    host, _, port = scheduler.rpartition("/")[2].rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except (OSError, ValueError) as error:
        raise ValueError(f"scheduler: {scheduler} can't be reached ({error})") from None


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
