"""Delta over communication rounds."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from fedmuscle_lib.plots.palette import styles
from fedmuscle_lib.report import BASELINE, label
from fedmuscle_lib.style import HOUSE, closed


def training_curve(curve: pd.DataFrame) -> Figure:
    """Delta over communication rounds, a line an algorithm with its 95 % band; one panel a public set.

    Args:
        curve: rows as ``report.curve`` returns them.
    """
    curve = curve[curve.algorithm != BASELINE]
    look, publics = styles(curve.algorithm), list(dict.fromkeys(curve.public))
    with plt.rc_context(HOUSE):
        figure, axes = plt.subplots(1, len(publics), figsize=(3.2 * len(publics) + 1, 3), sharey=True, squeeze=False)
        for ax, public in zip(axes[0], publics, strict=True):
            for name, rows in curve[curve.public == public].groupby("algorithm", sort=False):
                colour, marker = look[name]
                ax.plot(rows["round"], rows.delta, color=colour, marker=marker, markersize=4, label=label(name))
                ax.fill_between(rows["round"], rows.ci_low, rows.ci_high, color=colour, alpha=0.15, linewidth=0)
            ax.axhline(0, color="black", linewidth=0.8)
            ax.set_title(public)
            ax.set_xlabel("communication round")
            ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes[0, 0].set_ylabel("Δ over local training (%)")
        handles = [Line2D([], [], color=colour, marker=marker, label=label(name)) for name, (colour, marker) in look.items()]
        figure.legend(handles=handles, loc="outside upper center", ncols=len(handles))
    return closed(figure)
