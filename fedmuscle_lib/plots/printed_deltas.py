"""The paper's printed Deltas beside those of its cells."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from fedmuscle_lib.core.style import HALO, housed
from fedmuscle_lib.data.public import NAMES
from fedmuscle_lib.fedmuscle.arms import label

_RIGHT, _WRONG = "#555555", "#D55E00"


@housed
def printed_deltas(deltas: pd.DataFrame, exchanges: pd.DataFrame) -> Figure:
    """How far Delta of a table's cells is from the printed one, a point a Delta; hollow, where it
    is once two cells are exchanged.

    Args:
        deltas, exchanges: as the functions of these names in ``report.audit`` return them.
    """
    figure, ax = plt.subplots(figsize=(6.8, 3.4))
    ax.axhline(0, color="black", linewidth=0.8, zorder=0)
    right, wrong = deltas[deltas.agrees], deltas[~deltas.agrees]
    ax.plot(
        right.printed,
        right.difference,
        "o",
        color=_RIGHT,
        markeredgecolor="white",
        label="agrees to the printed digits",
    )
    ax.plot(wrong.printed, wrong.difference, "v", color=_WRONG, label="does not")
    left = exchanges.of_exchanged - exchanges.printed
    ax.plot(
        exchanges.printed,
        left,
        "o",
        color=_WRONG,
        fillstyle="none",
        label="after exchanging two cells",
    )
    ax.vlines(
        exchanges.printed,
        left,
        exchanges.of_cells - exchanges.printed,
        color=_WRONG,
        linewidth=0.8,
        linestyle=":",
        zorder=0,
    )
    ax.margins(y=0.12)
    low, high = ax.get_xlim()
    for row in wrong.itertuples():
        far = row.printed > low + 0.7 * (high - low)
        name = f"Table {row.table}, {NAMES.get(row.public, row.public)}: {label(row.algorithm)}"
        place, side = (-4 if far else 4, 8), "right" if far else "left"
        ax.annotate(
            name,
            (row.printed, row.difference),
            place,
            textcoords="offset points",
            ha=side,
            va="center",
            fontsize=7,
            bbox=HALO,
        )
    ax.set(xlabel="Δ as printed (%)", ylabel="Δ of the printed cells\nminus Δ as printed (points)")
    figure.legend(loc="outside upper center", ncols=3)
    return figure
