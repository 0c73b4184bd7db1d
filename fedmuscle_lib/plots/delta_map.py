"""The map of Delta: a panel a number of alignment steps, a line a place."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from fedmuscle_lib.core.style import GREY, forest, housed, legend
from fedmuscle_lib.fedmuscle.arms import BASELINE, UNFORGETTING, label
from fedmuscle_lib.plots.palette import styles


@housed
def delta_map(rows: pd.DataFrame, paper: dict[str, int]) -> Figure:
    """Delta of each arm in each place, from the place that forgets most to the one that forgets
    least; arms with a single seed are hollow.

    Head only says how much local training forgets. Places where Delta is undefined, since a metric
    of local training is 0, have no points.

    Args:
        rows: as ``report.delta_map`` returns them.
        paper: alignment steps of a user in the paper, by the name of their mark.
    """
    rows = rows[rows.algorithm != BASELINE]
    rows, look = (
        rows.assign(rank=rows.groupby("place").forgotten.transform("mean")),
        styles(rows.algorithm),
    )
    rows = rows.sort_values(["steps", "rank"], ascending=[True, False], kind="stable")
    single = rows.ci_low.isna()
    panels, lines = (
        rows.steps.map("{:,} alignment steps a user".format),
        rows.place.str.replace(", ", ",\n"),
    )
    rows = rows.assign(
        panel=panels, unit="Δ over local training (%)", line=lines, arm=rows.algorithm
    )
    rows = rows.assign(value=rows.delta.mask(single), theirs=rows.delta.where(single))
    figure = forest(rows, look)
    names = {
        name: f"{label(name)}{': what local training forgets' if name == UNFORGETTING else ''}"
        for name in look
    }
    hollow = {"hollow: a single seed": GREY} if single.any() else {}
    legend(figure, "upper center", {names[name]: each for name, each in look.items()}, hollow, "")
    figure.supxlabel(
        "alignment steps a user: " + "; ".join(f"{name}, {n:,}" for name, n in paper.items()),
        fontsize=7.5,
    )
    return figure
