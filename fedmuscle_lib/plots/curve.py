"""Values over communication rounds."""

from __future__ import annotations

import pandas as pd
import seaborn.objects as so
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedmuscle_lib.core.style import housed, legend, on_figure
from fedmuscle_lib.fedmuscle.arms import label
from fedmuscle_lib.plots.palette import styles


@housed
def curve(rows: pd.DataFrame) -> Figure:
    """A line an arm with its 95 % band, and a panel for each ``panel``, one below the other.

    Args:
        rows: panel, algorithm, round, mean, ci_low, ci_high.
    """
    look = styles(rows.algorithm)
    plot = so.Plot(rows, x="round", y="mean", color="algorithm", marker="algorithm")
    plot = plot.facet("panel", wrap=1).share(y=False).label(x="communication round", y="")
    plot = plot.add(so.Band(alpha=0.15), ymin="ci_low", ymax="ci_high", legend=False)
    plot = plot.add(so.Line(pointsize=3), legend=False)
    plot = plot.scale(x=so.Continuous().tick(MaxNLocator(integer=True)))
    figure = on_figure(plot, look, 5, 0.4 + 2.4 * rows.panel.nunique())
    legend(figure, "upper center", {label(name): each for name, each in look.items()})
    return figure
