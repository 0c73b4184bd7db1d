"""The figure of the bridge."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fedmuscle_lib.bridge.heads import HEADS
from fedmuscle_lib.core.style import HOUSE, closed, save, strip
from fedmuscle_lib.plots.palette import styles
from fedmuscle_lib.report import label

__all__ = ["peers", "save"]

_GROUPS = ("head", "middle", "tail")


def peers(differences: pd.DataFrame) -> Figure:
    """What alignment with peers adds: a panel a group of classes, a line a head, a point for each arm that FedMuscle is compared with.

    Args:
        differences: rows of ``report.PEERS`` as ``report.differences`` returns them.
    """
    look = styles(differences.b)
    rows = differences.rename(columns={"difference": "value"})
    rows = rows.assign(algorithm=rows.b, line=rows.b_head.map(list(HEADS).index) + 0.24 * (rows.b.map(list(look).index) - 0.5))
    with plt.rc_context(HOUSE):
        figure, axes = plt.subplots(1, len(_GROUPS), figsize=(8.4, 2.9), sharex=True, sharey=True)
        for ax, group in zip(axes, _GROUPS, strict=True):
            strip(ax, rows[rows.group == group], look)
            ax.set_title(f"{group} classes")
            ax.set_xlabel("points")
        axes[0].set_yticks(range(len(HEADS)), list(HEADS))
        axes[0].set_ylim(len(HEADS) - 0.5, -0.5)
        handles = [
            Line2D([], [], color=colour, marker=marker, label=f"{label('fedmuscle')} − {label(arm)}")
            for arm, (colour, marker) in look.items()
        ]
        figure.legend(handles=handles, loc="outside upper center", ncols=len(handles))
    return closed(figure)
