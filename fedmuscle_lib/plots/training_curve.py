"""Delta over communication rounds."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, ScalarFormatter

from fedmuscle_lib.core.style import HOUSE, closed
from fedmuscle_lib.fedmuscle.arms import TUNED, setting_of
from fedmuscle_lib.plots.palette import styles
from fedmuscle_lib.report import BASELINE, label


def training_curve(curve: pd.DataFrame) -> Figure:
    """Delta over communication rounds, a line an algorithm with its 95 % band; one panel a public set.

    The axis is linear up to 10 % and logarithmic beyond, since in the first rounds local training has learnt little. Arms with a tuned
    recipe are left out, as they train for other numbers of epochs in a round, and so is the probe, which has no rounds.

    Args:
        curve: rows as ``report.curve`` returns them.
    """
    curve = curve[~curve.algorithm.isin([BASELINE, "probe"]) & (curve.algorithm.map(setting_of) != TUNED)]
    look, publics = styles(curve.algorithm), list(dict.fromkeys(curve.public))
    with plt.rc_context(HOUSE):
        figure, axes = plt.subplots(1, len(publics), figsize=(3.2 * len(publics) + 2.5, 3), sharey=True, squeeze=False)
        for ax, public in zip(axes[0], publics, strict=True):
            for name, rows in curve[curve.public == public].groupby("algorithm", sort=False):
                colour, marker = look[name]
                ax.plot(rows["round"], rows.delta, color=colour, marker=marker, markersize=4, label=label(name))
                ax.fill_between(rows["round"], rows.ci_low, rows.ci_high, color=colour, alpha=0.15, linewidth=0)
            ax.axhline(0, color="black", linewidth=0.8)
            ax.set_title(public)
            ax.set_xlabel("communication round")
            ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes[0, 0].set_yscale("symlog", linthresh=10)  # of all panels, which share it
        axes[0, 0].yaxis.set_major_formatter(ScalarFormatter())
        axes[0, 0].set_ylabel("Δ over local training (%)")
        handles = [Line2D([], [], color=colour, marker=marker, label=label(name)) for name, (colour, marker) in look.items()]
        figure.legend(handles=handles, loc="outside right center")
    return closed(figure)
