"""The figure of the bridge."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from fedmuscle_lib.bridge.heads import HEADS
from fedmuscle_lib.core.style import forest, housed, legend, save
from fedmuscle_lib.plots.palette import styles
from fedmuscle_lib.report import label

__all__ = ["peers", "save"]

_GROUPS = ("head", "middle", "tail")


@housed
def peers(differences: pd.DataFrame) -> Figure:
    """Draw what alignment adds: a panel a group of classes, a line a head, a point for each arm
    that FedMuscle is compared with.

    Args:
        differences: rows of ``report.PEERS`` as ``report.differences`` returns them.
    """
    look = styles(differences.b)
    rows = differences[differences.group.isin(_GROUPS)].rename(
        columns={"difference": "value", "b": "arm", "b_head": "line"}
    )
    rows = rows.assign(panel=rows.group + " classes", unit="points")
    order = [*_GROUPS, *HEADS]
    figure = forest(
        rows.sort_values(
            ["group", "line"], key=lambda names: names.map(order.index), kind="stable"
        ),
        look,
    )
    legend(
        figure,
        "upper center",
        {f"{label('fedmuscle')} − {label(arm)}": each for arm, each in look.items()},
    )
    return figure
