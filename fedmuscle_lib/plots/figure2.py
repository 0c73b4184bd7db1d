"""Figure 2: Delta per public set."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from fedmuscle_lib.core.style import HOUSE, closed
from fedmuscle_lib.plots.palette import styles
from fedmuscle_lib.report import label

_OBJECTIVES = ("fedmuscle", "gramian", "pairwise")  # the bars, from left to right


def figure2(delta: pd.DataFrame) -> Figure:
    """Figure 2: Delta of each objective for each public set, ours solid with 95 % intervals, the paper's hatched beside it.

    Args:
        delta: rows as ``report.delta`` returns them.
    """
    publics = list(dict.fromkeys(delta.public))
    rows = delta.set_index(["public", "algorithm"])
    colours = {name: colour for name, (colour, _) in styles(_OBJECTIVES).items()}
    slot = 0.86 / len(_OBJECTIVES)  # of a public set's unit width
    with plt.rc_context(HOUSE):
        figure, ax = plt.subplots(figsize=(6.8, 3.4))
        for k, name in enumerate(_OBJECTIVES):
            for group, public in enumerate(publics):
                if (public, name) in rows.index:
                    left = group - 0.43 + k * slot
                    _pair_of_bars(ax, left, slot, rows.loc[(public, name)], colours[name])
        ax.axhline(0, color="black", linewidth=0.8)
        ax.set_xticks(range(len(publics)), publics)
        ax.set_xlabel("public set")
        ax.set_ylabel("Δ over local training (%)")
        handles = [Patch(color=colours[name], label=label(name)) for name in _OBJECTIVES]
        handles += [Patch(color="#555555", label="ours"), Patch(facecolor="white", edgecolor="#555555", hatch="////", label="the paper's")]
        figure.legend(handles=handles, loc="outside upper center", ncols=len(handles))
    return closed(figure)


def _pair_of_bars(ax: Axes, left: float, slot: float, row: pd.Series, colour: str) -> None:
    width = 0.46 * slot
    ax.bar(left, row.delta, width, align="edge", color=colour)
    _whisker(ax, left + width / 2, row.delta, row.ci_low, row.ci_high)
    if pd.notna(row.paper_delta):
        ax.bar(left + width, row.paper_delta, width, align="edge", facecolor="white", edgecolor=colour, hatch="////", linewidth=1)


def _whisker(ax: Axes, x: float, value: float, low: float, high: float) -> None:
    if pd.notna(low):
        ax.errorbar(x, value, yerr=[[value - low], [high - value]], color="black", linewidth=1, capsize=2.5)
