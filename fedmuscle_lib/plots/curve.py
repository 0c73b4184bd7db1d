"""Values over communication rounds."""

from __future__ import annotations

from math import ceil

import pandas as pd
import seaborn.objects as so
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedmuscle_lib.core.style import housed, legend, on_figure
from fedmuscle_lib.fedmuscle.arms import label
from fedmuscle_lib.plots.palette import styles


@housed
def curve(rows: pd.DataFrame, wrap: int = 1) -> Figure:
    """A line an arm with its 95 % band, if there is one, and a panel for each ``panel``.

    Args:
        rows: panel, algorithm, round, mean and, if there are several seeds, ci_low, ci_high.
        wrap: panels in a row.
    """
    rows, look = rows.reset_index(drop=True), styles(rows.algorithm)
    plot = so.Plot(rows, x="round", y="mean", color="algorithm", marker="algorithm")
    plot = plot.facet("panel", wrap=wrap).share(y=False).label(x="communication round", y="")
    if "ci_low" in rows:
        plot = plot.add(so.Band(alpha=0.15), ymin="ci_low", ymax="ci_high", legend=False)
    plot = plot.add(so.Line(pointsize=3), legend=False)
    plot = plot.scale(x=so.Continuous().tick(MaxNLocator(integer=True)))
    height = 0.4 + 2.4 * ceil(rows.panel.nunique() / wrap)
    figure = on_figure(plot, look, 3 + 2 * wrap, height)
    legend(figure, "upper center", {label(name): each for name, each in look.items()})
    return figure
