"""Delta under each of several choices, a line each."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from fedmuscle_lib.core.style import forest, housed, legend
from fedmuscle_lib.plots.palette import styles
from fedmuscle_lib.report import label

_ARMS = ("fedmuscle", "self", "head_only")


@housed
def choices(rows: pd.DataFrame) -> Figure:
    """Delta over local training, a line a choice in the rows' order; the dashed line is FedMuscle's
    with the first choice.

    Args:
        rows: as ``report.delta_at_points`` returns them.
    """
    lines = rows[rows.algorithm.isin(_ARMS)].rename(
        columns={"choice": "line", "algorithm": "arm", "delta": "value"}
    )
    look = styles(_ARMS)
    figure = forest(lines.assign(panel="", unit="Δ over local training (%)"), look)
    first = lines[lines.arm == "fedmuscle"].value.iloc[0]
    figure.axes[0].axvline(
        first, color=look["fedmuscle"][0], linewidth=0.8, linestyle="--", zorder=0
    )
    legend(figure, "upper center", {label(arm): look[arm] for arm in _ARMS})
    return figure
