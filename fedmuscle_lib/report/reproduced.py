"""Two tables for pages, from committed CSV files: what of the paper is reproduced, and Delta in
every world.

``reproduced.toml`` lists the tables and figures of the paper, and ours.
``fedmuscle_lib.report.prose`` writes both tables into the pages that ask for them.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from fedmuscle_lib.core.notebooks import runs_of
from fedmuscle_lib.fedmuscle.arms import TUNED_BASELINE, label
from fedmuscle_lib.report.claims import selected, words
from fedmuscle_lib.report.statistics import markdown, with_interval
from fedmuscle_lib.report.world_table import delta_of_worlds

PROFILES = ("mini", "small")
IN_SHORT = (
    "fedmuscle",
    "self",
    "head_only",
    TUNED_BASELINE,
)  # arms that tell what Delta is made of


def listed() -> list[dict[str, Any]]:
    """The paper's tables and figures in its order, and ours, as ``reproduced.toml`` has them."""
    rows: list[dict[str, Any]] = tomllib.loads(
        Path(__file__).with_suffix(".toml").read_text(encoding="utf8")
    )["row"]
    return rows


def reproduced(root: Path) -> str:
    """Each table and figure of the paper, and ours: the paper's Delta, that of our runs with 95 %
    intervals, their minutes, and verdicts.

    Args:
        root: of the repository; links are relative to it.

    Raises:
        KeyError, ValueError: ``reproduced.toml`` names a row that is not in a committed file.
    """
    rows = [
        [
            "the paper",
            "notebook",
            "its Δ, %",
            *(f"`{profile}`" for profile in PROFILES),
            "minutes",
            "verdicts",
        ]
    ]
    for one in listed():
        page = one.get("page") or f"notebooks/{one['notebook']}.ipynb"
        rows.append(
            [
                one["paper"],
                f"[{one['shows']}]({page})",
                *(["" for _ in rows[0][2:]] if "page" in one else _measured(root, one)),
            ]
        )
    return markdown(rows)


def deltas_in_worlds(root: Path) -> str:
    """Delta over local training of :data:`IN_SHORT` in every world that has a reference of
    ``controls``, and the paper's FedMuscle.
    """
    found = delta_of_worlds(root / "figures")
    paper = found[found.algorithm == "fedmuscle"].paper_delta.dropna().iloc[0]
    rows = [
        ["Δ over local training, %", *map(label, IN_SHORT)],
        ["the paper", f"{paper:+.1f}", *([""] * (len(IN_SHORT) - 1))],
    ]
    for world, own in found.groupby("world", sort=False):
        cells = own.set_index("algorithm").loc[list(IN_SHORT), ["delta", "ci_low", "ci_high"]]
        rows.append([str(world), *(_unbroken(*cell) for cell in cells.to_numpy())])
    return markdown(rows)


def gain(folder: Path, one: Mapping[str, Any]) -> str:
    """What stands for a folder as one of :func:`listed` says, Delta or a difference of two, with
    its interval; "page" if it has none.
    """
    file, row, value = (
        ("differences", one["difference"], "difference")
        if "difference" in one
        else ("delta", one["row"], "delta")
    )
    found = selected(pd.read_csv(folder / f"{file}.csv"), row)
    return "page" if found.empty else _unbroken(*found[[value, "ci_low", "ci_high"]].iloc[0])


TABLES = {"reproduced": reproduced, "worlds": deltas_in_worlds}


def _measured(root: Path, one: dict[str, Any]) -> list[str]:
    folders = {profile: root / "figures" / profile / one["notebook"] for profile in PROFILES}
    there = [folder for folder in folders.values() if folder.exists()]
    ours = [
        _cell(folder, one, root) if folder in there else one.get("lacks", {}).get(name, "not run")
        for name, folder in folders.items()
    ]
    minutes = [f"{sum(run['seconds'] for run in runs_of(folder)) / 60:.0f}" for folder in there]
    tested = [words(folder.parent).get(one["notebook"], "") for folder in folders.values()]
    return [_theirs(there, one), *ours, " + ".join(minutes), "; ".join(filter(None, tested))]


def _theirs(folders: list[Path], one: dict[str, Any]) -> str:
    """The same of the paper, where it prints one and we have a row to find it in."""
    if not folders or "row" not in one:
        return ""
    printed = pd.read_csv(folders[0] / "delta.csv")
    value, *over = (
        selected(printed, one[name]).paper_delta.iloc[0] for name in ("row", "over") if name in one
    )
    return f"{value - sum(over):+.2f}" if pd.notna(value) else ""


def _cell(folder: Path, one: dict[str, Any], root: Path) -> str:
    return f"[{gain(folder, one) if 'row' in one else 'curves'}]({folder.relative_to(root)})"


def _unbroken(value: float, low: float, high: float) -> str:
    return with_interval(value, low, high, digits=1).replace(" ", "\N{NO-BREAK SPACE}")
