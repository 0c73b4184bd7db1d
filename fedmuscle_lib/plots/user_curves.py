"""Each user's metric over communication rounds, also while its run goes on."""

from __future__ import annotations

from math import ceil

import pandas as pd
import seaborn.objects as so
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedmuscle_lib.core.style import housed, legend, on_figure
from fedmuscle_lib.plots.palette import styles
from fedmuscle_lib.report import label
from fedmuscle_lib.report.side_by_side import with_unit

_COLUMNS = 3  # of panels


@housed
def user_curves(curves: pd.DataFrame) -> Figure:
    """Draw a panel a user and in it a line an algorithm.

    Args:
        curves: algorithm, user, model, task, metric, round, value.
    """
    curves = curves.sort_values("user", kind="stable", ignore_index=True)
    curves = curves.assign(
        panel=[f"user {row.user}: {row.model}, {row.task}" for row in curves.itertuples()]
    )
    look, users = styles(curves.algorithm), curves.drop_duplicates("user")
    plot = (
        so.Plot(curves, x="round", y="value", color="algorithm", marker="algorithm")
        .facet("panel", wrap=_COLUMNS)
        .share(x=False, y=False)
        .add(so.Line(pointsize=4), legend=False)
        .scale(x=so.Continuous().tick(MaxNLocator(integer=True)))
        .label(x="communication round", y="")
    )
    figure = on_figure(plot, look, 9, 0.4 + 2.2 * ceil(len(users) / _COLUMNS))
    for ax, metric in zip(figure.axes, users.metric, strict=True):
        ax.set_ylabel(with_unit(metric), visible=True)  # seaborn hides all but the first column's
    legend(figure, "upper center", {label(name): look[name] for name in look})
    return figure
