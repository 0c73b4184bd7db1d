"""Delta against what an ablation varies."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil

import pandas as pd
import seaborn.objects as so
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from fedmuscle_lib.core.style import housed, legend, on_figure
from fedmuscle_lib.plots.palette import styles
from fedmuscle_lib.report import BASELINE, label


@housed
def ablation(rows: pd.DataFrame, x: str, axis: str | Iterable[str], wrap: int = 1) -> Figure:
    """Delta over local training, a line an arm with its 95 % intervals, against one thing that is
    varied; the paper's points are hollow.

    Args:
        rows: as ``report.deltas`` returns them at points; with a panel for each ``panel``, if they
            have that.
        x: the column that is drawn from left to right. A panel's values stand at equal distances,
            arms a little beside each other.
        axis: what the axis is called, with its unit, or what each panel's is.
        wrap: panels in a row.
    """
    rows = rows[rows.algorithm != BASELINE]
    rows = rows.assign(panel=rows.get("panel", ""))
    rows["x"] = rows.groupby("panel")[x].rank("dense") - 1
    look = styles(rows.algorithm)
    rows["x"] += rows.algorithm.map(
        {name: 0.06 * (i - (len(look) - 1) / 2) for i, name in enumerate(look)}
    )
    plot = so.Plot(
        rows, x="x", y="delta", color="algorithm", marker="algorithm", pointsize="algorithm"
    )
    plot = plot.facet("panel", wrap=wrap).share(x=False)
    plot = plot.add(so.Line(linewidth=1), legend=False).add(
        so.Range(linewidth=1.5), ymin="ci_low", ymax="ci_high", legend=False
    )
    plot = plot.add(so.Dot(fill=False, stroke=1), y="paper_delta", legend=False).add(
        so.Dot(edgecolor="white"), legend=False
    )
    plot = plot.label(x="", y="Δ over local training (%)", title=str)
    panels = rows.panel.nunique()
    figure = on_figure(plot, look, 2.7 * wrap + 2.3, 2.4 * ceil(panels / wrap) + 0.8)
    for ax, name in zip(
        figure.axes, [axis] * panels if isinstance(axis, str) else axis, strict=True
    ):
        ax.set_xlabel(name, visible=True)  # seaborn hides all but the last row's
        ax.axhline(0, color="black", linewidth=0.8, zorder=0)
        values = sorted(rows[x][rows.panel == ax.get_title()].unique())
        ax.set_xticks(
            range(len(values)),
            [f"{value:g}" if isinstance(value, float) else str(value) for value in values],
        )
        ax.xaxis.set_minor_locator(NullLocator())
    theirs = rows.dropna(subset="paper_delta").algorithm.unique()
    hollow = {f"{label(name)} in the paper": look[name] for name in theirs}
    legend(figure, "upper center", {label(name): each for name, each in look.items()}, hollow)
    return figure
