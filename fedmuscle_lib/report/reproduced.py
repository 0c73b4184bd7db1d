"""Two tables for pages, from committed CSV files: what of the paper is reproduced, and Delta in every world.

``reproduced.toml`` lists the tables and figures of the paper. ``fedmuscle_lib.report.prose`` writes both into the pages that ask for them.
"""

from __future__ import annotations

import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

import pandas as pd

from fedmuscle_lib.core.notebooks import runs_of
from fedmuscle_lib.fedmuscle.arms import TUNED_BASELINE, label
from fedmuscle_lib.report.claims import counted, selected
from fedmuscle_lib.report.statistics import with_interval
from fedmuscle_lib.report.world_table import delta_of_worlds

PROFILES = ("mini", "small")
IN_SHORT = ("fedmuscle", "self", "head_only", TUNED_BASELINE)  # arms that tell what Delta is made of


def reproduced(root: Path) -> str:
    """Each table and figure of the paper: its Delta, ours with 95 % intervals, minutes of our runs, and verdicts on its claims.

    Args:
        root: of the repository; links are relative to it.

    Raises:
        KeyError, ValueError: ``reproduced.toml`` names a row that is not in a committed file.
    """
    listed = tomllib.loads(resources.files("fedmuscle_lib.report").joinpath("reproduced.toml").read_text(encoding="utf8"))["row"]
    rows = [["the paper", "notebook", "its Δ, %", *(f"`{profile}`" for profile in PROFILES), "minutes", "its claims"]]
    for one in listed:
        page = one.get("page") or f"notebooks/{one['notebook']}.ipynb"
        rows.append([one["paper"], f"[{one['shows']}]({page})", *(["" for _ in rows[0][2:]] if "page" in one else _measured(root, one))])
    return markdown(rows)


def deltas_in_worlds(root: Path) -> str:
    """Delta over local training of :data:`IN_SHORT` in every world that has a reference of ``controls``, and the paper's FedMuscle."""
    found = delta_of_worlds(root / "figures")
    paper = found[found.algorithm == "fedmuscle"].paper_delta.dropna().iloc[0]
    rows = [["Δ over local training, %", *map(label, IN_SHORT)], ["the paper", f"{paper:+.1f}", *([""] * (len(IN_SHORT) - 1))]]
    for world, own in found.groupby("world", sort=False):
        cells = own.set_index("algorithm").loc[list(IN_SHORT), ["delta", "ci_low", "ci_high"]]
        rows.append([str(world), *(with_interval(value, low, high, digits=1) for value, low, high in cells.to_numpy())])
    return markdown(rows)


def markdown(rows: list[list[str]]) -> str:
    """A Markdown table; the first row is its head."""
    head, *body = (f"|{'|'.join(row)}|" for row in rows)
    return "\n".join([head, f"|{'---|' * len(rows[0])}", *body])


TABLES = {"reproduced": reproduced, "worlds": deltas_in_worlds}


def _measured(root: Path, one: dict[str, Any]) -> list[str]:
    folders = {profile: root / "figures" / profile / one["notebook"] for profile in PROFILES}
    there = {profile: folder for profile, folder in folders.items() if folder.exists()}
    deltas = {profile: _delta(folder, one) for profile, folder in there.items()}
    theirs = [delta.paper_delta for delta in deltas.values() if delta is not None and pd.notna(delta.paper_delta)]
    lacks = {profile: one.get("lacks", {}).get(profile, "not run") for profile in PROFILES}
    ours = [_cell(there[name], deltas[name], root) if name in there else lacks[name] for name in PROFILES]
    minutes = [f"{sum(run['seconds'] for run in runs_of(folder)) / 60:.0f}" for folder in there.values()]
    return [f"{theirs[0]:+.2f}" if theirs else "", *ours, " + ".join(minutes), _verdicts(root, one)]


def _delta(folder: Path, one: dict[str, Any]) -> pd.Series | None:
    """The row of ``delta.csv`` that stands for a table; None where the paper prints no number."""
    return selected(pd.read_csv(folder / "delta.csv"), one["row"]).iloc[0] if "row" in one else None


def _cell(folder: Path, delta: pd.Series | None, root: Path) -> str:
    text = "curves" if delta is None else with_interval(delta.delta, delta.ci_low, delta.ci_high, digits=1)
    return f"[{text}]({folder.relative_to(root)})"


def _verdicts(root: Path, one: dict[str, Any]) -> str:
    """How many of its claims have which verdict, in each profile where one of them was tested."""
    parts = []
    for profile in PROFILES:
        found = pd.read_csv(root / "figures" / profile / "claims" / "claims.csv")
        parts.append(counted(found[found["where"].isin(one.get("claims", []))].verdict))
    return "; ".join(filter(None, parts))
