"""The grid: the chosen notebooks, some at a time, into one folder with an index page."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from fedmuscle_lib.core.notebooks import FIGURES, NOTEBOOKS
from fedmuscle_lib.core.ownership import refuse_other_file
from fedmuscle_lib.reproduce import children
from fedmuscle_lib.reproduce.children import Children, Outcome
from fedmuscle_lib.reproduce.estimate import announcement
from fedmuscle_lib.reproduce.index import START, index
from fedmuscle_lib.reproduce.plan import ALL, folder_of, in_reference, plan, select, unsaved

_log = logging.getLogger("fedmuscle")


def reproduce(
    notebooks: Sequence[str] | None = None,
    profile: str = "mini",
    seeds: Sequence[int] | None = None,
    jobs: int = 2,
    output: Path = Path("results"),
    overrides: dict[str, Any] | None = None,
    *,
    shipped_only: bool = False,
    scheduler: str | None = None,
    folder: Path = NOTEBOOKS,
    reference: Path = FIGURES,
) -> list[Outcome]:
    """Execute notebooks, ``jobs`` at a time, into ``<output>/<profile>/<folder>/executed.ipynb``,
    and write the index page.

    A notebook's folder has its name, followed by parameters that are neither the notebook's own nor
    the reference's, such as ``table7_rounds=5`` or ``controls_setup1_vit``. What is about to run,
    and for how long, goes to the logger "fedmuscle" first.

    A notebook has its committed parameters where none are given, also if the saved file has others,
    which a warning then names. One that fails does not keep the others from running. One that fails
    or lacks a run keeps the pages that it had, and one that is interrupted all of its results.
    Their log lines go to the logger as they come. Runs that were finished or interrupted here
    before are fetched or resumed; all others are computed, also those that came with the
    repository.

    Args:
        notebooks: names, without suffix, or "all"; by default the core or, with ``shipped_only``,
            all of the folder's.
        profile: for every notebook that has such a parameter.
        seeds: likewise; by default [0] or, with ``shipped_only``, those of the reference.
        overrides: parameters of notebooks by name, and settings, which go into a notebook's own
            parameter ``overrides``.
        shipped_only: compute nothing. Runs that came with the repository are shown too. Without
            seeds and overrides a notebook is drawn once for each folder that its reference has,
            with the folder's parameters; with any, once, with the reference's where none are given.
            One of which a run is not stored is reported as missing.
        scheduler: address of a Dask scheduler, such as ``tcp://host:8786``, whose workers compute
            the runs.
        folder: where the notebooks are.
        reference: where their committed results are.

    Raises:
        ValueError: an unknown notebook, a misspelt parameter or one of another type; nothing has
            run then.
        NotOurs: something else lies in the place of a notebook's folder or of the index page;
            nothing has run then.
        OSError: the output folder can't be written, or its disk is full.
    """
    target = Path(output).resolve() / profile
    common: dict[str, Any] = {"profile": profile, "output": os.path.relpath(target.parent, folder)}
    if seeds is not None or not shipped_only:
        common["seeds"] = list(seeds or [0])
    planned = []
    for path, given in plan(
        select(notebooks or ([ALL] if shipped_only else None), folder), common, overrides or {}
    ).items():
        usual, told = unsaved(path)
        if told:
            _log.warning(told)
        made = in_reference(path, reference / profile, given) if shipped_only else [given]
        planned += [(path, usual | parameters) for parameters in made]
    for path, given in planned:
        children.claim(target / folder_of(path, given))
    refuse_other_file(target / "index.html", START)
    at_a_time = min(jobs, len(planned))
    sources = (
        {"FEDMUSCLE_SHIPPED": "1", "FEDMUSCLE_COMPUTE": "0"}
        if shipped_only
        else {"FEDMUSCLE_SHIPPED": "0"}
    )
    processes = Children(
        max(1, _cores() // at_a_time),
        sources | ({"FEDMUSCLE_SCHEDULER": scheduler} if scheduler else {}),
    )
    pool = ThreadPoolExecutor(at_a_time)
    outcomes = []
    try:
        _try_to_write(target)
        for line in announcement(
            planned, reference / profile, min(at_a_time, _cores()), shipped_only
        ):
            _log.info(line)
        futures = [
            pool.submit(children.execute, path, target / folder_of(path, given), given, processes)
            for path, given in planned
        ]
        for future in as_completed(futures):
            outcomes.append(outcome := future.result())
            if outcome.failure:
                _log.error("%s: failed: %s", outcome.notebook, outcome.failure)
            index(target)
    except OSError as error:
        raise OSError(error.errno, error.strerror, error.filename or str(target)) from error
    # after an interrupt or a full disk there are children left, which must not outlive this call
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        processes.end()
        pool.shutdown()
        processes.clean()
        if len(outcomes) < len(planned) and target.is_dir():
            index(target)  # of those that ended, or ended last time
    return outcomes


def _try_to_write(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryFile(dir=folder) as probe:  # without a name, so that a kill leaves none
        probe.write(bytes(1 << 20))  # less than any notebook's results


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
