"""Table 1 as a figure: Delta of every algorithm beside the paper's."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fedmuscle_lib.core.style import HOUSE, closed, point, strip
from fedmuscle_lib.plots.palette import styles
from fedmuscle_lib.report import added, label

_LETTER = 0.075  # inches of a label's width


def table1(delta: pd.DataFrame) -> Figure:
    """One panel a public set: Delta of every algorithm with its 95 % interval, the paper's hollow; controls and ours below a line.

    Args:
        delta: rows as ``report.delta`` returns them.
    """
    arms = sorted(dict.fromkeys(delta.algorithm), key=added)
    look, publics = styles(arms), list(dict.fromkeys(delta.public))
    with plt.rc_context(HOUSE):
        size = (2.4 * len(publics) + _LETTER * max(len(label(arm)) for arm in arms), 0.8 + 0.26 * len(arms))
        figure, axes = plt.subplots(1, len(publics), figsize=size, sharex=True, sharey=True, squeeze=False)
        for ax, public in zip(axes[0], publics, strict=True):
            rows = delta[delta.public == public]
            for row in rows.itertuples():
                point(ax, row.paper_delta, arms.index(row.algorithm), look[row.algorithm], fillstyle="none")
            strip(ax, rows.rename(columns={"delta": "value"}), look)
            ax.axhline(sum(not added(arm) for arm in arms) - 0.5, color="#888888", linewidth=0.8, linestyle="--")
            ax.set_title(public)
            ax.set_xlabel("Δ over local training (%)")
        axes[0, 0].set_yticks(range(len(arms)), [label(arm) for arm in arms])
        axes[0, 0].invert_yaxis()
        ours = Line2D([], [], color="#555555", marker="o", label="ours, with 95 % interval")
        theirs = Line2D([], [], color="#555555", marker="o", fillstyle="none", linestyle="", label="the paper's")
        figure.legend(handles=[ours, theirs], loc="outside upper center", ncols=2)
    return closed(figure)
