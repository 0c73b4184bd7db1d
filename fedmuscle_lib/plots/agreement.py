"""Our Delta against the paper's."""

from __future__ import annotations

from itertools import count

import numpy as np
import pandas as pd
import seaborn.objects as so
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from fedmuscle_lib.core.style import HALO, Look, closed, housed, on_figure
from fedmuscle_lib.data.public import NAMES
from fedmuscle_lib.plots.palette import styles
from fedmuscle_lib.report import label


@housed
def agreement(delta: pd.DataFrame, ranks: pd.DataFrame) -> Figure:
    """Our Delta against the paper's, a point an algorithm that has both with its 95 % interval; one
    panel a public set.

    Args:
        delta: rows as ``report.delta`` returns them.
        ranks: rows as ``report.rank_agreement`` returns them; their rho is in the titles.
    """
    look, rows = (
        styles(delta.algorithm),
        delta.dropna(subset=["delta", "paper_delta"]).replace({"public": NAMES}),
    )
    ranks = ranks.replace({"public": NAMES})
    plot = so.Plot(
        rows,
        x="paper_delta",
        y="delta",
        color="algorithm",
        marker="algorithm",
        pointsize="algorithm",
    )
    plot = plot.facet("public", order=list(ranks.public)).share(x=False)
    plot = plot.add(so.Range(), ymin="ci_low", ymax="ci_high", legend=False).add(
        so.Dot(edgecolor="white"), legend=False
    )
    plot = plot.label(x="the paper's Δ over local training (%)", y="our Δ over local training (%)")
    figure = on_figure(plot, look, max(2.9 * len(ranks), 4.5), 3.6)
    for ax, rank in zip(figure.axes, ranks.itertuples(), strict=True):
        ax.axhline(0, color="#dddddd", linewidth=0.8, zorder=0)
        ax.axvline(0, color="#dddddd", linewidth=0.8, zorder=0)
        ax.set_title(f"{rank.public}: ρ = {rank.rho:+.2f}" if pd.notna(rank.rho) else rank.public)
    closed(figure)  # names can be kept apart once the axes stay where they are
    for ax, public in zip(figure.axes, ranks.public, strict=True):
        _name_points(ax, rows[rows.public == public], look)
    return figure


def _name_points(ax: Axes, rows: pd.DataFrame, look: dict[str, Look]) -> None:
    """Beside each point its algorithm, as near as it can be without covering another name or a
    point.
    """
    points = ax.transData.transform(rows[["paper_delta", "delta"]])
    taken = [Bbox.from_bounds(x - 6, y - 6, 12, 12) for x, y in points]
    for row in rows.sort_values("delta").itertuples():
        is_right = row.paper_delta > np.mean(ax.get_xlim())
        name = ax.annotate(
            label(row.algorithm),
            (row.paper_delta, row.delta),
            xytext=(-6 if is_right else 6, 0),
            textcoords="offset points",
            ha="right" if is_right else "left",
            va="center",
            color=look[row.algorithm][0],
            fontsize=7,
            bbox=HALO,
        )
        for step in count():
            name.xyann = (name.xyann[0], (-1) ** step * (step + 1) // 2)
            if not any(name.get_window_extent().overlaps(other) for other in taken):
                break
        taken.append(name.get_window_extent())
