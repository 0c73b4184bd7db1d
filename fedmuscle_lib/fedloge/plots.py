"""Figures of this system: one colour and marker per method everywhere, ours solid beside the
authors' hollow, with intervals over seeds.

Every function returns a closed ``Figure``; :func:`save` writes it.
"""

from __future__ import annotations

import pandas as pd
import seaborn.objects as so
from matplotlib.figure import Figure

from fedmuscle_lib.core.style import Look, at_last, forest, housed, legend, looks, on_figure, save
from fedmuscle_lib.fedloge.evaluation import ALL
from fedmuscle_lib.fedloge.report import MEASURES, OVER_OTHERS, label

__all__ = [
    "STYLES",
    "differences",
    "global_accuracy",
    "over_rounds",
    "personal_accuracy",
    "save",
]

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
_ARMS: dict[str, Look] = {
    f"fedloge, norm {nu}": ("#8800CC", "d") for nu in ("0.1", "1")
}  # a page has the one that is not the profile's
GROUPS: dict[str, Look] = {
    ALL: ("#000000", "o"),
    "head": ("#0072B2", "s"),
    "middle": ("#009E73", "^"),
    "tail": ("#D55E00", "D"),
}
# Limits of an axis: an interval over few seeds may reach where no accuracy can be.
_ACCURACIES = (-2, 102)


def global_accuracy(table: pd.DataFrame) -> Figure:
    """GM: a panel a group of classes, a line a method and head, the authors' hollow.

    Args:
        table: rows as ``report.table`` returns them.
    """
    rows = table[table.scope == "global"].sort_values(
        "group", key=lambda names: names.map(list(GROUPS).index), kind="stable"
    )
    return _accuracies(rows.assign(panel=rows.group.map(_title), unit="GM (%)"))


@housed
def over_rounds(rows: pd.DataFrame) -> Figure:
    """GM over communication rounds: a panel for all classes and one for the tail, a line a method,
    and the last round's 95 % intervals.

    Methods that FedLoGe is compared with, and FedLoGe by SSE-C and, dashed, by the realigned head.

    Args:
        rows: as ``report.over_rounds`` returns them.
    """
    arms = rows.algorithm + ", " + rows["head"]
    compared = {end for scope, *ends in OVER_OTHERS if scope == "global" for end in ends}
    plain = rows.algorithm.str.partition(", ")[0] + ", " + rows["head"]
    rows = rows.assign(line=arms, panel=rows.group.map(_title))[
        plain.isin(compared) & rows.group.isin([ALL, "tail"])
    ]
    look = looks(rows.algorithm, STYLES | _ARMS)
    plot = so.Plot(
        rows, x="round", y="mean", color="algorithm", linestyle="head", group="line"
    ).facet("panel")
    plot = plot.add(so.Line(), legend=False)
    dashes = so.Nominal(
        {head: (3, 1.5) if head == "realigned" else "-" for head in rows["head"].unique()}
    )
    plot = plot.scale(linestyle=dashes).label(x="communication round", y="GM (%)")
    figure = on_figure(plot, look, 8.6, 3.4)
    for ax in figure.axes:
        at_last(ax, rows[rows.panel == ax.get_title()], look)
        ax.set_ylim(
            _ACCURACIES[0], min(_ACCURACIES[1], 1.05 * rows[["mean", "ci_high"]].max(axis=None))
        )
    dashed: dict[str, Look] = (
        {"realigned head": ("#555555", "")} if "realigned" in set(rows["head"]) else {}
    )
    legend(figure, "right center", {label(arm): each for arm, each in look.items()}, dashed)
    return figure


def personal_accuracy(table: pd.DataFrame) -> Figure:
    """PM over all classes, where every class can be predicted and where those absent from a
    client's local test can't be.

    Args:
        table: rows as ``report.table`` returns them.
    """
    rows = table[(table.scope == "personal") & (table.group == ALL)].sort_values(
        "masked", kind="stable"
    )
    titles = rows.masked.map({False: "every class can be predicted", True: "absent classes masked"})
    return _accuracies(rows.assign(panel=titles, unit="PM (%)"))


@housed
def _accuracies(rows: pd.DataFrame) -> Figure:
    """A line an algorithm and head, in the order of their first rows."""
    names = {"mean": "value", "authors_mean": "theirs", "algorithm": "arm"}
    lines = (rows.algorithm + ", " + rows["head"]).map(label)
    figure = forest(
        rows.rename(columns=names).assign(line=lines),
        looks(rows.algorithm, STYLES | _ARMS),
        theirs="the authors', last round",
    )
    for ax in figure.axes:
        ax.set_xlim(_ACCURACIES)
    return figure


def _title(group: str) -> str:
    return "all classes" if group == ALL else group


@housed
def differences(rows: pd.DataFrame) -> Figure:
    """Differences between two heads: a panel a measure, a line a group of classes.

    Args:
        rows: as ``report.differences`` returns them, with one pair of heads for each measure.
    """
    panels = [MEASURES[row.scope, row.masked] for row in rows.itertuples()]
    lines = rows.group.map(_title)
    rows = rows.assign(panel=panels, unit="points", line=lines, arm=rows.group)
    return forest(rows.rename(columns={"difference": "value"}), GROUPS)
