"""An ablation: Delta at every point of what it varies, beside the paper's, and how far FedMuscle's
moves from the first point.

What is varied stands in columns of its own, before ``algorithm``. At each point Delta is over the
local training of that point.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from fedmuscle_lib.fedmuscle.ablations import Point, only, runs_of
from fedmuscle_lib.fedmuscle.algorithms import PHASES, Phase
from fedmuscle_lib.fedmuscle.arms import BASELINE, HEADLINE, as_arm, label
from fedmuscle_lib.report.compare import by_seed, delta_difference
from fedmuscle_lib.report.costs import costs
from fedmuscle_lib.report.delta import DELTA_COLUMNS, delta, table
from fedmuscle_lib.report.departures import departures
from fedmuscle_lib.report.paper import paper_cells, paper_points
from fedmuscle_lib.report.provenance import save, write_results
from fedmuscle_lib.report.statistics import wide_intervals
from fedmuscle_lib.report.write import file_of, provenance_of

_THERE = "there"  # the setting of arms of another point than the first


def delta_at_points(
    points: Sequence[Point], phase: Phase = HEADLINE, paper: str = ""
) -> pd.DataFrame:
    """``report.delta`` at every point, with what is varied in columns before ``algorithm``.

    Args:
        paper: the table of the paper whose Delta stands beside ours, such as "table5"; without one
            ``paper_delta`` is NaN.
    """
    rows = _at_every(points, partial(delta, phase=phase)).drop(columns="paper_delta")
    return (
        rows.merge(paper_points(paper), how="left")
        if paper
        else rows.assign(paper_delta=float("nan"))
    )


def table_at_points(
    points: Sequence[Point], phase: Phase = HEADLINE, paper: str = ""
) -> pd.DataFrame:
    """``report.table`` at every point, beside the cells of the table ``paper`` of the paper,
    "table4" or "table8".
    """
    rows = _at_every(points, partial(table, phase=phase))
    return rows.drop(columns=["paper_mean", "paper_std"]).merge(paper_cells(paper), how="left")[
        list(rows)
    ]


def minus_first(
    points: Sequence[Point], phase: Phase = HEADLINE, panel: Sequence[str] = ()
) -> pd.DataFrame:
    """FedMuscle's Delta at every point minus that at the first point, on the same seeds and over
    the first point's users.

    Args:
        panel: of what is varied, what a panel has in common; each point is compared with the first
            one of its panel.

    Returns:
        what is varied, public, difference (points), std, n_seeds, ci_low, ci_high; no row for a
        first point.

    Raises:
        ValueError: a point has no run of FedMuscle, or no seed in common with the first.
    """
    columns = [*points[0].varied, "public", "difference", "std", "n_seeds", "ci_low", "ci_high"]
    parts = [pd.DataFrame(columns=columns)]
    panels: dict[tuple[Any, ...], list[Point]] = {}
    for point in points:
        panels.setdefault(tuple(point.varied[key] for key in panel), []).append(point)
    for first, *others in panels.values():
        users = [user.number for user in first.histories[0].settings.members]
        for point in others:
            there = [
                only(one, users) for one in point.histories if one.arm in ("fedmuscle", BASELINE)
            ]
            rows = delta_difference(
                [*first.histories, *as_arm(there, _THERE)],
                f"fedmuscle, {_THERE}",
                "fedmuscle",
                phase,
            )
            parts.append(_beside(point.varied, rows))
    return pd.concat(parts[1:] or parts, ignore_index=True)[columns]


def by_effect(points: Sequence[Point]) -> list[Point]:
    """The first point, then the others from the one that moves FedMuscle's Delta most from the
    first's to the one that does so least.
    """
    first, *others = points
    order = minus_first(points).difference.abs().sort_values(ascending=False, kind="stable").index
    return [first, *(others[i] for i in order)]


def costs_at_points(points: Sequence[Point]) -> pd.DataFrame:
    """``report.costs`` at every point."""
    return _at_every(points, costs)


def by_point(rows: pd.DataFrame) -> pd.DataFrame:
    """:func:`delta_at_points` laid out for reading: a row a point, a column an arm with its
    interval, and the paper's Delta.
    """
    varied = [name for name in rows if name not in DELTA_COLUMNS]
    found = (
        wide_intervals(rows, "delta", varied, "algorithm")
        .drop(columns=BASELINE)
        .rename(columns=label)
    )
    theirs = rows.dropna(subset="paper_delta").set_index(varied).paper_delta
    return (
        found.assign(**{"FedMuscle in the paper": theirs.reindex(found.index)})
        if len(theirs)
        else found
    )


def of_groups(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows at several numbers of users as those of one table: the other arms' at the largest
    number, then FedMuscle's at each.
    """
    others, fedmuscle = (
        rows[(rows.algorithm == "fedmuscle") == wanted] for wanted in (False, True)
    )
    named = fedmuscle.assign(algorithm="fedmuscle, N = " + fedmuscle.n_users.astype(str))
    return pd.concat([others[others.n_users == others.n_users.max()], named], ignore_index=True)


def write_points(
    points: Sequence[Point], folder: Path, paper: str = "", panel: Sequence[str] = ()
) -> None:
    """Write an ablation's CSV files and where they come from.

    ``table.csv`` and ``delta.csv`` have a row an arm and point, and ``table_<moment>.csv`` and
    ``delta_<moment>.csv`` those of the other moment; ``delta_by_seed.csv`` has a row a run and
    point; ``minus_first.csv`` is :func:`minus_first` within each ``panel``, ``overview.csv``
    :func:`by_point`; ``costs.csv`` has bytes and operations at every point.
    """
    for phase in PHASES:
        save(table_at_points(points, phase, paper), folder / file_of("table", phase))
        save(delta_at_points(points, phase, paper), folder / file_of("delta", phase))
        save(
            _at_every(points, partial(by_seed, phase=phase)),
            folder / file_of("delta_by_seed", phase),
        )
        save(minus_first(points, phase, panel=panel), folder / file_of("minus_first", phase))
    save(by_point(delta_at_points(points, paper=paper)).reset_index(), folder / "overview.csv")
    frames = {"costs": costs_at_points(points), "departures": departures(points[0].histories)}
    write_results(frames, provenance_of(runs_of(points), folder.name), folder)


def _at_every(points: Sequence[Point], measure: Callable[..., pd.DataFrame]) -> pd.DataFrame:
    return pd.concat(
        [_beside(point.varied, measure(point.histories)) for point in points], ignore_index=True
    )


def _beside(varied: dict[str, Any], rows: pd.DataFrame) -> pd.DataFrame:
    """``rows`` with what is varied in columns after the public set, or in front where there is
    none.
    """
    where = list(rows).index("public") + 1 if "public" in rows else 0
    columns = [*rows.columns[:where], *varied, *rows.columns[where:]]
    return rows.assign(**varied)[columns]
