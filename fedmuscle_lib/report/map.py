"""The map of Delta: FedMuscle and its controls in places that differ in how much local training
forgets, and over numbers of steps.

A place is a setup and a recipe of local training; its settings come from the profile
(``[places."<name>"]`` in its TOML file) or are given. How much local training forgets there is
measured: it is the Delta of ``head_only``, whose users train the same head for as many steps on the
backbone as it was pretrained. It is above 0 where adapting the backbone costs more than it gives.

The number of alignment steps is varied by the size of the public set and by nothing else. Rounds,
local epochs, passes over the public set and draws of peers stay, as in Table 6 of the paper, and
arms that never look at public data are one run for all numbers of steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from fedmuscle_lib.fedmuscle.ablations import Point, runs_of
from fedmuscle_lib.fedmuscle.algorithms import PHASES, Phase
from fedmuscle_lib.fedmuscle.arms import (
    BASELINE,
    HEADLINE,
    TUNED_BASELINE,
    UNFORGETTING,
    alignment_steps,
    label,
)
from fedmuscle_lib.fedmuscle.settings import parse
from fedmuscle_lib.report.frame import delta, paired
from fedmuscle_lib.report.provenance import save
from fedmuscle_lib.report.statistics import side_of_zero, wide_intervals, with_intervals
from fedmuscle_lib.report.tables import deltas, ends, file_of, moved, tidy, write

_WITHOUT_PEERS = ("self", "frozen_peers", UNFORGETTING)
_COLUMNS = ["place", "steps", "over", "public", "difference", "std", "n_seeds", "ci_low", "ci_high"]


def papers_steps() -> dict[str, int]:
    """Alignment steps of a user in the paper: in its main tables, and in Table 6 with 300 public
    images.
    """
    paper = parse({"profile": "paper"})
    few = paper.model_copy(update={"public_size": 300})
    return {"the paper": alignment_steps(paper), "the paper, 300 images": alignment_steps(few)}


def delta_map(points: Iterable[Point], phase: Phase = HEADLINE) -> pd.DataFrame:
    """Delta of every arm at every point.

    Returns:
        place, setup, steps, forgotten (Delta of head_only, in per cent, on the seeds of the point:
        how much local training forgets), and the columns of ``report.delta`` but for the paper's.
    """
    parts = []
    for point in points:
        rows = deltas(ends(tidy(point.histories), phase)).drop(columns="paper_delta")
        forgotten = rows[rows.algorithm == UNFORGETTING].delta.item()
        setup = point.histories[0].settings.setup
        where = {
            "place": point.varied["place"],
            "setup": setup,
            "steps": point.varied["steps"],
            "forgotten": forgotten,
        }
        parts.append(rows.assign(**where)[[*where, *rows]])
    return pd.concat(parts, ignore_index=True)


def map_peers(points: Iterable[Point], phase: Phase = HEADLINE) -> pd.DataFrame:
    """FedMuscle at every point beside arms without live peers: its Delta minus that of such an arm,
    on the same seeds.

    Returns:
        place, steps, over ("self", "frozen_peers" or "head_only"), public, difference (points),
        std, n_seeds, ci_low, ci_high.
    """
    by = ["place", "steps", "public"]
    values = delta(ends(tidy(list(points)), phase), [*by, "algorithm"])
    pairs, where = [("fedmuscle", over) for over in _WITHOUT_PEERS], ["place", "steps"]
    each = [paired(own, pairs, by, "delta") for _, own in values.groupby(where, sort=False)]
    return pd.concat(each, ignore_index=True).rename(columns={"b": "over"})[_COLUMNS]


def map_steps(points: Sequence[Point], phase: Phase = HEADLINE) -> pd.DataFrame:
    """FedMuscle's Delta at every point minus that at its place's first point, on the same seeds.

    The first point that ``ablations.run_map`` returns of a place has the number of alignment steps
    that is nearest to the place's own.

    Returns:
        place, steps, over (steps of the first point), public, difference (points), std, n_seeds,
        ci_low, ci_high; no row for first points.
    """
    rows = moved(ends(tidy(points), phase), ["place"])
    first = {point.varied["place"]: point.varied["steps"] for point in reversed(points)}
    return rows.assign(over=rows.place.map(first))[_COLUMNS]


def write_map(points: Sequence[Point], folder: Path) -> None:
    """Write the map's CSV files, and what ``report.write`` gives of the first point.

    ``delta_map.csv``, ``peers.csv`` and ``steps.csv`` are :func:`delta_map`, :func:`map_peers` and
    :func:`map_steps`, each also for the other moment, and ``overview.csv`` is :func:`map_by_place`.
    ``provenance.json`` names every run of the map once.
    """
    first = points[0].histories
    known = {history.provenance["address"] for history in first}
    write(
        first,
        folder,
        others=[run for run in runs_of(points) if run.provenance["address"] not in known],
    )
    for phase in PHASES:
        save(delta_map(points, phase), folder / file_of("delta_map", phase))
        save(map_peers(points, phase), folder / file_of("peers", phase))
        save(map_steps(points, phase), folder / file_of("steps", phase))
    save(map_by_place(delta_map(points), map_peers(points)).reset_index(), folder / "overview.csv")


def map_by_place(rows: pd.DataFrame, peers: pd.DataFrame) -> pd.DataFrame:
    """:func:`delta_map` and :func:`map_peers` laid out for reading: a row a point, from what
    forgets most to what forgets least.
    """
    by = ["place", "steps"]
    rows = rows.assign(rank=rows.groupby("place").forgotten.transform("mean"))
    rows = rows.sort_values(["rank", "steps"], ascending=[False, True], kind="stable")
    found = (
        wide_intervals(rows, "delta", by, "algorithm").drop(columns=BASELINE).rename(columns=label)
    )
    own = rows[rows.algorithm == "fedmuscle"].set_index(by).reindex(found.index)
    if own.delta_tuned.notna().any():
        found[f"FedMuscle over {label(TUNED_BASELINE)}"] = with_intervals(
            own, "delta_tuned", "ci_low_tuned", "ci_high_tuned"
        )
    for over, own in peers.groupby("over", sort=False):
        found[f"FedMuscle − {label(over)}"] = with_intervals(
            own.set_index(by).reindex(found.index), "difference"
        )
    return found


def map_in_words(rows: pd.DataFrame, peers: pd.DataFrame) -> str:
    """Markdown, three sentences: over what FedMuscle helps and at how many points, where most and
    least, and how much of it peers give.
    """
    deltas = rows.pivot(index=["place", "steps"], columns="algorithm", values="delta").dropna(
        subset="fedmuscle"
    )
    others = [name for name in (BASELINE, UNFORGETTING, TUNED_BASELINE) if name in deltas]
    above = [
        f"of {label(name).lower()} at {_at(deltas.fedmuscle > deltas[name])}" for name in others
    ]
    own = rows[rows.algorithm == "fedmuscle"].dropna(subset="delta")
    if own.empty:
        return "- FedMuscle's Δ is undefined everywhere, since a metric of local training is 0."
    least, most = own.loc[own.delta.idxmin()], own.loc[own.delta.idxmax()]
    alone = peers[peers.over == "self"].dropna(subset="difference")
    sides = [
        side_of_zero(row.ci_low, row.ci_high) for row in alone.itertuples() if pd.notna(row.ci_low)
    ]
    told = (
        f"the 95 % interval is above 0 at {sides.count(1)} and below it at {sides.count(-1)} of the"
        f" {len(sides)} points that have one"
    )
    return "\n".join(
        [
            f"- FedMuscle's mean Δ is above that {', '.join(above[:-1])} and {above[-1]}.",
            f"- It goes from {_where(least)} to {_where(most)}.",
            (
                "- FedMuscle minus self, live peers in place of one's own frozen copy, goes from"
                f" {alone.difference.min():+.1f} to {alone.difference.max():+.1f} points of Δ and"
                f" is above 0 at {_at(alone.difference > 0)};"
                f" {told if sides else 'one seed cannot tell how much of this is chance'}."
            ),
        ]
    )


def _at(found: pd.Series) -> str:
    return f"{int(found.sum())} of {len(found)} points"


def _where(row: Any) -> str:
    return (
        f"{row.delta:+.1f} % ({row.place}, {row.steps} steps, where head only has"
        f" {row.forgotten:+.1f} %)"
    )
