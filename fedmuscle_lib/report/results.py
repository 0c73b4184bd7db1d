"""``RESULTS.md``: every Delta of the reference on one page, made from the committed CSV files and nothing else.

Real images come first. ``python -m fedmuscle_lib.report.results`` writes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from fedmuscle_lib.core import files
from fedmuscle_lib.core.files import ROOT, read_json
from fedmuscle_lib.core.notebooks import runs_of
from fedmuscle_lib.fedmuscle.arms import label
from fedmuscle_lib.report.prose import from_csv
from fedmuscle_lib.report.statistics import with_intervals

_HEAD = """# Results

`make reference` makes this page from the CSV files below `figures/`; edit nothing here.

Δ is the mean over all users of the improvement over local training, in per cent, after the last alignment, the end of Algorithm 1.
"Over tuned" compares with local training whose hyper-parameters were tuned on the validation split. The numbers in brackets are 95 % t
intervals over seeds. A single seed has no interval. The profile `mini` has the paper's regime in a generated world; `small` has real
images.

FedLoGe's tables hold accuracies in per cent after the last round, "ours | the authors'", or differences of them in points. GM is the
global model on the balanced test set, PM the mean of the clients' own models on their local tests. A masked model can't predict classes
that its local test lacks. After ± stands the standard deviation over seeds (n in the denominator), which is no interval.

`bridge` has differences of accuracies in points, the mean over FedMuscle's users with one label a sample, whose training sets have long
tails there.

## FedMuscle and its controls in every world

<!-- table worlds -->
<!-- /table -->

![The same as a figure](figures/worlds.svg)
"""


def results_page(figures: Path) -> str:
    """The page's text: for each profile and notebook, Delta with its interval beside the paper's, and where the runs come from.

    A notebook that writes an ``overview.csv``, a table of texts, has this here instead.

    Raises:
        DataError, KeyError: a notebook's folder has no readable provenance.json, or its delta.csv lacks a column.
    """
    parts = [_HEAD]
    for profile in sorted((path for path in figures.iterdir() if path.is_dir()), reverse=True):  # real images first
        if entries := sorted({path.parent for name in _TABLES for path in profile.glob(f"*/{name}")}):
            parts.append(f"## Profile `{profile.name}`\n")
            parts += [_section(entry, f"{figures.name}/{profile.name}") for entry in entries]
    return "\n".join(parts)


def _section(entry: Path, above: str) -> str:
    provenance = read_json(entry / "provenance.json")
    table = next(laid_out(entry / name) for name, laid_out in _TABLES.items() if (entry / name).exists())
    return f"### [{entry.name}]({above}/{entry.name})\n\n{table}\n\n{_origin(provenance, runs_of(entry), above)}\n"


def _overview(path: Path) -> str:
    """The table of texts as it is; a bar within a cell is escaped."""
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    rows = [_line([cell.replace("|", r"\|") for cell in row]) for row in table.to_numpy()]
    return "\n".join([_line(list(table)), _line(["---"] * len(table.columns)), *rows])


def _deltas(path: Path) -> str:
    """A row an algorithm; for each public set a column for ours, for ours over tuned local training if there is any, and the paper's."""
    delta = pd.read_csv(path)
    columns = {"ours": with_intervals(delta, "delta")}
    if "delta_tuned" in delta and delta.delta_tuned.notna().any():  # a reference of an earlier commit lacks it
        columns["over tuned"] = with_intervals(delta, "delta_tuned", "ci_low_tuned", "ci_high_tuned")
    columns["the paper's"] = ["" if pd.isna(value) else f"{value:+.2f}" for value in delta.paper_delta]
    cells = pd.DataFrame(columns, index=delta.public)
    publics = list(dict.fromkeys(delta.public))
    head = ["algorithm", "seeds", *(f"`{public}`, {whose}" for public in publics for whose in columns)]
    lines = [_line(head), _line(["---"] * len(head))]
    for name, rows in delta.groupby("algorithm", sort=False):
        seeds = ", ".join(map(str, sorted(set(rows.n_seeds))))
        own = cells[(delta.algorithm == name).to_numpy()].reindex(publics, fill_value="")
        lines.append(_line([label(str(name)), seeds, *own.to_numpy().flatten()]))
    return "\n".join(lines)


_TABLES = {"overview.csv": _overview, "delta.csv": _deltas}


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _origin(provenance: dict[str, Any], runs: Sequence[dict[str, Any]], above: str) -> str:
    where = f"are shipped in `{above}/runs.zip`" if provenance.get("shipped") else "are not shipped"
    made_with = _listed(f"torch {fact['torch']} on {fact['machine']}" for fact in provenance["made_with"])
    took = f"took {sum(run['seconds'] for run in runs) / 60:,.0f} minutes one after another"
    return f"The {len(runs)} runs {where}; they {took}, and were made by `{provenance['command']}` with {made_with}."


def _listed(facts: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(facts))


if __name__ == "__main__":
    files.write(ROOT / "RESULTS.md", from_csv(results_page(ROOT / "figures")))
