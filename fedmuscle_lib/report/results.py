"""``RESULTS.md``: every Delta of the reference on one page, made from the committed CSV files and nothing else.

``python -m fedmuscle_lib.report.results`` writes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from fedmuscle_lib.report.arms import label
from fedmuscle_lib.report.delta import DELTA_COLUMNS
from fedmuscle_lib.report.layout import with_interval
from fedmuscle_lib.report.prose import ROOT

_HEAD = """# Results

`make reference` makes this page from the CSV files below `figures/`; edit nothing here.

Δ is the mean improvement over local training over all users, in per cent, at the end of Algorithm 1. The numbers in brackets are its
95 % t interval over seeds. A single seed has no interval.
"""


def results_page(figures: Path) -> str:
    """The page's text: for each profile and notebook, Delta with its interval beside the paper's, and where the runs come from.

    Raises:
        OSError, KeyError: a notebook's folder has no provenance.json, or its delta.csv lacks a column.
    """
    parts = [_HEAD]
    for profile in sorted(path for path in figures.iterdir() if path.is_dir()):
        if entries := sorted(path.parent for path in profile.glob("*/delta.csv")):
            parts.append(f"## Profile `{profile.name}`\n")
            parts += [_section(entry, f"{figures.name}/{profile.name}") for entry in entries]
    return "\n".join(parts)


def _section(entry: Path, above: str) -> str:
    provenance = json.loads((entry / "provenance.json").read_text(encoding="utf8"))
    table = _table(pd.read_csv(entry / "delta.csv")[DELTA_COLUMNS])
    return f"### [{entry.name}]({above}/{entry.name})\n\n{table}\n\n{_origin(provenance, above)}\n"


def _table(delta: pd.DataFrame) -> str:
    """A row an algorithm; for each public set a column for ours and one for the paper's."""
    publics = list(dict.fromkeys(delta.public))
    head = ["algorithm", "seeds", *(f"`{public}`, {whose}" for public in publics for whose in ("ours", "the paper's"))]
    lines = [_line(head), _line(["---"] * len(head))]
    for name, rows in delta.groupby("algorithm", sort=False):
        cells = {row.public: (with_interval(row.delta, row.ci_low, row.ci_high), _signed(row.paper_delta)) for row in rows.itertuples()}
        seeds = ", ".join(map(str, sorted(set(rows.n_seeds))))
        lines.append(_line([label(str(name)), seeds, *(cell for public in publics for cell in cells.get(public, ("", "")))]))
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _signed(value: float) -> str:
    return "" if pd.isna(value) else f"{value:+.2f}"


def _origin(provenance: dict[str, Any], above: str) -> str:
    where = f"are shipped in `{above}/runs`" if provenance.get("shipped") else "are not shipped"
    made_with = _listed(f"torch {fact['torch']} on {fact['machine']}" for fact in provenance["made_with"])
    return f"The {len(provenance['runs'])} runs {where}; they were made by `{provenance['command']}` with {made_with}."


def _listed(facts: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(facts))


if __name__ == "__main__":
    (ROOT / "RESULTS.md").write_text(results_page(ROOT / "figures"), encoding="utf8")
