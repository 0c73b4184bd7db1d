"""Figures of FedLoGe's tables: one colour and marker per method everywhere, the authors' values
hollow, with 95 % intervals over seeds.

Every function returns a closed ``Figure``; :func:`save` writes it.
"""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd
from matplotlib.figure import Figure

from fedmuscle_lib.core.style import Look, forest, housed, looks, save
from fedmuscle_lib.fedloge.evaluation import ALL
from fedmuscle_lib.fedloge.report import label

__all__ = ["GROUPS", "STYLES", "accuracies", "palette", "save"]

# Okabe and Ito's colours and some of Tol's, as protanopes and deuteranopes can tell them apart. No
# two share a marker.
STYLES: dict[str, Look] = {
    "fedloge": ("#0072B2", "D"),
    "fedavg": ("#555555", "o"),
    "fedprox": ("#999933", "s"),
    "fedetf": ("#E69F00", "^"),
    "fedrod": ("#009E73", "P"),
    "ditto": ("#CC79A7", "X"),
    "fedper": ("#56B4E9", "v"),
    "fedrep": ("#332288", "<"),
    "fedbabu": ("#882255", ">"),
    "ratio_loss": ("#D55E00", "h"),
}
GROUPS: dict[str, Look] = {
    ALL: ("#000000", "o"),
    "head": ("#0072B2", "s"),
    "middle": ("#009E73", "^"),
    "tail": ("#D55E00", "D"),
}


def palette(arms: Iterable[str]) -> dict[str, str]:
    """The colour of each arm of a figure."""
    return {arm: colour for arm, (colour, _) in looks(arms, STYLES).items()}


@housed
def accuracies(rows: pd.DataFrame, panel: str, unit: str) -> Figure:
    """Draw a panel for each value of the column ``panel``, and in it a line for each algorithm and
    head, with the authors' last round hollow.

    Args:
        rows: of ``report.table``.
        unit: of the accuracies, such as "GM (%)".
    """
    lines = (rows.algorithm + ", " + rows["head"]).map(label)
    names = {panel: "panel", "mean": "value", "authors_mean": "theirs", "algorithm": "arm"}
    figure = forest(
        rows.rename(columns=names).assign(line=lines, unit=unit),
        looks(rows.algorithm, STYLES),
        theirs="the authors', last round",
    )
    for ax in figure.axes:
        ax.set_xlim(-2, 102)  # an interval over few seeds may reach where no accuracy can be
    return figure
