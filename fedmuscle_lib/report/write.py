"""Files that a notebook leaves: a folder of CSV files, and the provenance that says where they come
from.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedmuscle_lib.data.public import PUBLIC_SETS
from fedmuscle_lib.fedmuscle.algorithms import PHASES, Phase
from fedmuscle_lib.fedmuscle.arms import HEADLINE, TUNED, is_blind
from fedmuscle_lib.fedmuscle.profiles import numbers_of
from fedmuscle_lib.fedmuscle.settings import Settings
from fedmuscle_lib.fedmuscle.setups import task_of
from fedmuscle_lib.report import provenance
from fedmuscle_lib.report.compare import by_seed, paired_deltas
from fedmuscle_lib.report.costs import costs
from fedmuscle_lib.report.delta import delta, delta_by_task, delta_unshared, table
from fedmuscle_lib.report.departures import departures
from fedmuscle_lib.report.paper import PAPER
from fedmuscle_lib.report.provenance import option, save, write_results
from fedmuscle_lib.runs.history import History

USUAL_SETUP: str = Settings.model_fields["setup"].default


def file_of(table: str, phase: Phase) -> str:
    """Name of the CSV file that holds ``table`` at the moment ``phase``: the headline moment's is
    not named.
    """
    return f"{table}.csv" if phase == HEADLINE else f"{table}_{phase}.csv"


def write(
    histories: Sequence[History],
    folder: Path,
    paper: Sequence[str] = PAPER,
    others: Sequence[History] = (),
) -> None:
    """Write both phases' tables, the costs and the departures from the paper, as CSV files, and
    where they come from.

    ``table.csv``, ``delta.csv`` and ``delta_by_task.csv`` are about the moment ``HEADLINE``,
    ``table_<moment>.csv`` and so on about the other one. ``delta_by_seed.csv`` has a row a run.
    ``paired_deltas.csv`` is there where a Delta has another one to stand against. Where users of
    different models have one checkpoint, ``delta_unshared.csv`` is Delta over the others.
    ``provenance.json`` holds the command that makes the folder, the machine, the versions and every
    run, also of ``others``, which the folder's other files are about.
    """
    for phase in PHASES:
        save(table(histories, phase, paper), folder / file_of("table", phase))
        save(delta(histories, phase, paper), folder / file_of("delta", phase))
        save(delta_by_task(histories, phase), folder / file_of("delta_by_task", phase))
        save(by_seed(histories, phase), folder / file_of("delta_by_seed", phase))
        if len(paired := paired_deltas(histories, phase)):
            save(paired, folder / file_of("paired_deltas", phase))
        if len(unshared := delta_unshared(histories, phase)):
            save(unshared, folder / file_of("delta_unshared", phase))
    frames = {"costs": costs(histories), "departures": departures(histories)}
    write_results(frames, provenance_of([*histories, *others], folder.name), folder)


def provenance_of(histories: Sequence[History], folder: str) -> dict[str, Any]:
    """Return what ``provenance.provenance_of`` says of the runs, and what the manifests of their
    data say.

    A setup that the folder does not name is the notebook's own; a public set that it names is not.
    """
    s = histories[0].settings
    usual = Settings(profile=s.profile, setup=s.setup, backbones=s.backbones).model_dump(
        mode="json"
    )
    usual |= {
        "setup": USUAL_SETUP if s.setup in folder else s.setup,
        "backbones": numbers_of(s.profile, s.setup).get("backbones", {}),
    }
    told = provenance.provenance_of(
        histories, folder, [h.arm for h in histories], usual, s.aside(), data_manifests(histories)
    )
    if f"public={s.public}" in folder:
        told["command"] += option("public", s.public)
    protocols = {h.settings.protocol for h in histories}
    if len(protocols) > 1 and (
        chosen := protocols - {TUNED, usual["protocol"]}
    ):  # tuned arms have their own, so it is not shared
        told["command"] += option("protocol", *chosen)
    return told


def data_manifests(histories: Sequence[History]) -> dict[str, dict[str, Any]]:
    """Return what ``provenance.manifests`` finds for the users' data and the public sets."""
    folders = {
        task_of(user).folder
        for h in histories
        for user in h.settings.members
        if user.folder is None
    }
    folders |= {PUBLIC_SETS[h.settings.public] for h in histories if not is_blind(h.arm)}
    return provenance.manifests(histories[0].settings.data_dir, folders)
