"""What a notebook leaves: a folder of CSV files, and the provenance that says where they come from."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from fedmuscle_lib.data import PUBLIC_SETS
from fedmuscle_lib.profiles import PROFILES
from fedmuscle_lib.report.arms import HEADLINE, PHASES, History, Phase, arm, is_blind
from fedmuscle_lib.report.costs import costs
from fedmuscle_lib.report.delta import delta, delta_by_task, delta_unshared, table
from fedmuscle_lib.report.departures import NO_DEPARTURE, departures
from fedmuscle_lib.report.paper import PAPER
from fedmuscle_lib.settings import Settings
from fedmuscle_lib.tasks import TASKS

RESULTS = Path(__file__).parents[2] / "results"
USUAL_SETUP: str = Settings.model_fields["setup"].default
_MADE_WITH = ("python", "torch", "transformers", "peft", "processor", "machine", "device", "source")


def results_folder(notebook: str, profile: str, output: str = "", setup: str = USUAL_SETUP) -> Path:
    """``<output>/<profile>/<notebook>``, made if need be; without ``output`` below the repository's ``results``, which git ignores.

    A notebook that takes a setup has a folder for each, as ``folder_name`` calls it.
    """
    folder = Path(output or RESULTS) / profile / folder_name(notebook, setup)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def folder_name(notebook: str, setup: str = USUAL_SETUP) -> str:
    """``<notebook>`` or, where it is run with another setup than the usual one, ``<notebook>_<setup>``."""
    return notebook if setup == USUAL_SETUP else f"{notebook}_{setup}"


def file_of(table: str, phase: Phase) -> str:
    """Name of the CSV file that holds ``table`` at the moment ``phase``: the headline moment's is not named."""
    return f"{table}.csv" if phase == HEADLINE else f"{table}_{phase}.csv"


def write(histories: Sequence[History], folder: Path, paper: Sequence[str] = PAPER, others: Sequence[History] = ()) -> None:
    """Write both phases' tables, the costs and the departures from the paper, as CSV files, and where they come from.

    ``table.csv``, ``delta.csv`` and ``delta_by_task.csv`` are about the moment ``HEADLINE``, ``table_<moment>.csv`` and so on about the
    other one. Where users of different models have one checkpoint, ``delta_unshared.csv`` is Delta over the others. ``provenance.json``
    holds the command that makes the folder, the machine, the versions and every run, also of ``others``, which the folder's other files
    are about.
    """
    for phase in PHASES:
        save(table(histories, phase, paper), folder / file_of("table", phase))
        save(delta(histories, phase, paper), folder / file_of("delta", phase))
        save(delta_by_task(histories, phase), folder / file_of("delta_by_task", phase))
        if len(unshared := delta_unshared(histories, phase)):
            save(unshared, folder / file_of("delta_unshared", phase))
    save(costs(histories), folder / "costs.csv")
    save(departures(histories), folder / "departures.csv")
    notebook = folder.name.removesuffix(f"_{histories[0].settings.setup}")
    (folder / "provenance.json").write_text(json.dumps(provenance([*histories, *others], notebook), indent=1) + "\n")


def provenance(histories: Sequence[History], notebook: str) -> dict[str, Any]:
    """The command that repeats the runs and, for each of them, what it was, its address in the store, how long it took and on what.

    The settings in which runs differ stand with each of them; the command has the first one's.
    """
    seeds = ",".join(map(str, sorted({history.settings.seed for history in histories})))
    s = histories[0].settings
    usual = Settings(profile=s.profile, setup=s.setup, backbones=s.backbones).model_dump(mode="json")
    usual |= {"setup": USUAL_SETUP, "backbones": PROFILES[s.profile].get("backbones", {})}
    own = [history.settings.model_dump(mode="json") for history in histories]
    differing = [name for name in usual if name not in ("algorithm", "public", "seed") and any(o[name] != own[0][name] for o in own)]
    changed = {name: value for name, value in own[0].items() if name not in NO_DEPARTURE and value != usual[name]}
    overrides = "".join(" -p " + shlex.quote(f"{name}={json.dumps(value)}") for name, value in changed.items())
    made_with = [{name: h.provenance[name] for name in _MADE_WITH if name in h.provenance} for h in histories]
    runs = [
        {"algorithm": arm(h), "public": h.settings.public, "seed": h.settings.seed}
        | {name: o[name] for name in differing}
        | {"address": h.provenance.get("address"), "origin": h.origin, "versions": h.provenance.get("versions")}
        | {name: h.provenance[name] for name in ("seconds", "finished", "peak_memory_bytes")}
        for h, o in zip(histories, own, strict=True)
    ]
    return {
        "command": f"python -m fedmuscle_lib reproduce {notebook} --profile {s.profile} --seeds {seeds}{overrides}",
        "made_with": [fact for i, fact in enumerate(made_with) if fact not in made_with[:i]],
        "data": data_manifests(histories),
        "runs": runs,
    }


def data_manifests(histories: Sequence[History]) -> dict[str, dict[str, Any]]:
    """By folder below ``data_dir``, what the manifests that ``data_prep`` left with the users' data and the public sets say.

    None for the embedded world, which is the same everywhere.
    """
    folders = {TASKS[user.task].folder for h in histories for user in h.settings.members}
    folders |= {PUBLIC_SETS[h.settings.public] for h in histories if not is_blind(arm(h))}
    found = {}
    for folder in sorted(folders):
        path = histories[0].settings.data_dir / folder / "manifest.json"
        if path.exists():
            manifest = json.loads(path.read_text())
            found[folder] = {name: manifest.get(name) for name in ("dataset", "official", "counts", "sizes")}
    return found


def save(frame: pd.DataFrame, path: Path) -> None:
    """Write a CSV file without index; four decimals are more than any metric here has."""
    frame.round(4).to_csv(path, index=False)
