"""Delta against what an ablation varies."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil
from typing import Any

import pandas as pd
import seaborn.objects as so
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from fedmuscle_lib.core.style import housed, legend, on_figure
from fedmuscle_lib.plots.palette import styles
from fedmuscle_lib.report import BASELINE, label

_GREY = "#777777"
_SMALL: dict[str, Any] = {"color": _GREY, "fontsize": 7}


@housed
def ablation(rows: pd.DataFrame, x: str, axis: str | Iterable[str], wrap: int = 1) -> Figure:
    """Delta over local training, a line an arm with its 95 % intervals, against one thing that is
    varied; the paper's points are hollow. Beside what depends on it, what does not is a grey line,
    or a number at the panel's edge where it lies beyond all else.

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
    alike = rows.groupby(["panel", "algorithm"]).delta
    rows["steady"] = (alike.transform("nunique") == 1) & (alike.transform("size") > 1)
    rows["steady"] &= ~rows.groupby("panel").steady.transform("all")
    steady, rows = rows[rows.steady].drop_duplicates(["panel", "algorithm"]), rows[~rows.steady]
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
    for ax in figure.axes:
        ax.axhline(0, color="black", linewidth=0.8, zorder=0)
    low, high = figure.axes[0].get_ylim()  # of all panels
    for ax, name in zip(
        figure.axes, [axis] * panels if isinstance(axis, str) else axis, strict=True
    ):
        ax.set_xlabel(name, visible=True)  # seaborn hides all but the last row's
        _tell_steady(ax, steady[steady.panel == ax.get_title()], low, high)
        values = sorted(rows[x][rows.panel == ax.get_title()].unique())
        ax.set_xticks(
            range(len(values)),
            [f"{value:g}" if isinstance(value, float) else str(value) for value in values],
        )
        ax.xaxis.set_minor_locator(NullLocator())
    line = 0.06 * (high - low)  # of text
    above, below = (
        max(beyond.groupby(steady.panel).sum(), default=0)
        for beyond in (steady.delta > high, steady.delta < low)
    )
    figure.axes[0].set_ylim(low - line * below, high + line * above)
    theirs = rows.dropna(subset="paper_delta").algorithm.unique()
    hollow = {f"{label(name)} in the paper": look[name] for name in theirs}
    legend(figure, "upper center", {label(name): each for name, each in look.items()}, hollow)
    return figure


def _tell_steady(ax: Axes, arms: pd.DataFrame, low: float, high: float) -> None:
    """Draw arms that do not depend on what is varied; those beyond the limits at the edges."""
    for arm in arms[arms.delta.between(low, high)].itertuples():
        ax.axhline(arm.delta, color=_GREY, linewidth=1, linestyle="--", zorder=0)
        beside = {"va": "bottom", "transform": ax.get_yaxis_transform(), **_SMALL}
        ax.text(0.01, arm.delta, label(arm.algorithm), **beside)
    for edge, va, mark, beyond in (
        (1, "top", "▴", arms[arms.delta > high]),
        (0, "bottom", "▾", arms[arms.delta < low]),
    ):
        beyond = beyond.sort_values("delta", ascending=False)
        told = [f"{label(arm.algorithm)} {arm.delta:+.0f} {mark}" for arm in beyond.itertuples()]
        ax.text(0.01, edge, "\n".join(told), va=va, transform=ax.transAxes, **_SMALL)
