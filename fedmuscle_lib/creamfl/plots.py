"""The figure of Table 3: one colour and marker per arm, with 95 % intervals over seeds."""

from __future__ import annotations

import pandas as pd
import seaborn.objects as so
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedmuscle_lib.core.style import Look, at_last, housed, legend, looks, on_figure, save
from fedmuscle_lib.creamfl.report import label

__all__ = ["STYLES", "recall", "save"]

STYLES: dict[str, Look] = {
    "local": ("#555555", "o"),
    "creamfl": ("#E69F00", "s"),
    "creamfl_muscle": ("#0072B2", "D"),
    "pairwise": ("#009E73", "^"),
    "own": ("#CC79A7", "P"),
    "frozen": ("#56B4E9", "v"),
    "shuffled": ("#882255", "X"),
    "momentum": ("#D55E00", "<"),
}
_PANELS = {"i2t": "image to text", "t2i": "text to image"}


@housed
def recall(curve: pd.DataFrame) -> Figure:
    """R@1 of the whole test set over rounds: a panel a direction, a line an arm, and the last
    round's intervals; the dotted line is chance.

    Args:
        curve: rows as ``report.curve`` returns them.
    """
    look = looks(curve.algorithm, STYLES)
    rows = curve.assign(panel=curve.direction.map(_PANELS))
    plot = so.Plot(rows, x="round", y="mean", color="algorithm", marker="algorithm")
    plot = plot.facet("panel", order=list(_PANELS.values())).add(so.Line(pointsize=4), legend=False)
    plot = plot.scale(x=so.Continuous().tick(MaxNLocator(integer=True)))
    plot = plot.label(x="communication round", y="R@1 (%)")
    figure = on_figure(plot, look, 8.6, 3.2)
    for ax, direction in zip(figure.axes, _PANELS, strict=True):
        own = rows[rows.direction == direction]
        at_last(ax, own, look)
        ax.axhline(own.chance.iloc[0], color="black", linewidth=0.8, linestyle=":")
    legend(figure, "right center", {label(arm): each for arm, each in look.items()})
    return figure
