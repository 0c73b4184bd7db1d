"""Table 1 as a figure: Delta of every algorithm beside the paper's."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from fedmuscle_lib.core.style import forest, housed
from fedmuscle_lib.data.public import NAMES
from fedmuscle_lib.fedmuscle.arms import added, label
from fedmuscle_lib.plots.palette import styles


@housed
def table1(delta: pd.DataFrame) -> Figure:
    """One panel a public set: Delta of every algorithm with its 95 % interval, the paper's hollow;
    controls and ours below a line.

    Args:
        delta: rows as ``report.delta`` returns them.
    """
    names = {"public": "panel", "algorithm": "arm", "delta": "value", "paper_delta": "theirs"}
    rows = (
        delta.replace({"public": NAMES})
        .rename(columns=names)
        .sort_values("arm", key=lambda arms: arms.map(added), kind="stable")
    )
    rows = rows.assign(line=rows.arm.map(label), unit="Δ over local training (%)")
    figure = forest(rows, styles(rows.arm), theirs="the paper's")
    for ax in figure.axes:
        ax.axhline(
            delta.algorithm[~delta.algorithm.map(added)].nunique() - 0.5,
            color="#888888",
            linewidth=0.8,
            linestyle="--",
        )
    return figure
