"""Figures of this system: one colour and marker per method everywhere, ours solid beside the authors' hollow, with intervals over seeds.

Every function returns a closed ``Figure``; :func:`save` writes it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fedmuscle_lib.core.style import HOUSE, Marker, closed, looks, point, save, strip
from fedmuscle_lib.fedloge.evaluation import ALL
from fedmuscle_lib.fedloge.report import REALIGNMENTS, label

__all__ = ["STYLES", "classifier", "global_accuracy", "norms", "personal_accuracy", "realignment", "save"]

# Okabe and Ito's colours and some of Tol's, as protanopes and deuteranopes can tell them apart. No two share a marker.
STYLES: dict[str, tuple[str, Marker]] = {
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
GROUPS: dict[str, tuple[str, Marker]] = {
    ALL: ("#000000", "o"),
    "head": ("#0072B2", "s"),
    "middle": ("#009E73", "^"),
    "tail": ("#D55E00", "D"),
}
_HEADS: dict[str, tuple[str, Marker]] = {"sse_c": ("#0072B2", "D"), "shared": ("#E69F00", "s"), "realigned": ("#009E73", "^")}
_OURS = Line2D([], [], color="#555555", marker="o", label="ours, with 95 % interval")
_THEIRS = Line2D([], [], color="#555555", marker="o", fillstyle="none", linestyle="", label="the authors', last round")


def global_accuracy(table: pd.DataFrame) -> Figure:
    """GM: a panel a group of classes, a line a method and head, the authors' hollow.

    Args:
        table: rows as ``report.table`` returns them.
    """
    rows = table[table.scope == "global"]
    return _panels([(_title(group), rows[rows.group == group]) for group in GROUPS if group in set(rows.group)], "GM (%)")


def personal_accuracy(table: pd.DataFrame) -> Figure:
    """PM over all classes, where every class can be predicted and where those absent from a client's local test can't be.

    Args:
        table: rows as ``report.table`` returns them.
    """
    rows = table[(table.scope == "personal") & (table.group == ALL)]
    titles = {False: "every class can be predicted", True: "absent classes masked"}
    return _panels([(title, rows[rows.masked == masked]) for masked, title in titles.items()], "PM (%)")


def _panels(panels: list[tuple[str, pd.DataFrame]], axis: str) -> Figure:
    """A panel side by side with the next; a line an algorithm and head, in the order of their first rows."""
    panels = [(title, rows.assign(arm=rows.algorithm + ", " + rows["head"])) for title, rows in panels]
    arms = list(dict.fromkeys(arm for _, rows in panels for arm in rows.arm))
    look = looks((arm.partition(", ")[0] for arm in arms), STYLES)
    with plt.rc_context(HOUSE):
        size = (2 + 2.2 * len(panels), 1.1 + 0.26 * len(arms))
        figure, axes = plt.subplots(1, len(panels), figsize=size, sharex=True, sharey=True, squeeze=False)
        for ax, (title, rows) in zip(axes[0], panels, strict=True):
            rows = rows.assign(line=rows.arm.map(arms.index)).rename(columns={"mean": "value"})
            for row in rows.dropna(subset="authors_mean").itertuples():
                point(ax, row.authors_mean, row.line, look[row.algorithm], fillstyle="none")
            strip(ax, rows, look, zero=False)
            ax.set_title(title)
            ax.set_xlabel(axis)
        axes[0, 0].set_yticks(range(len(arms)), [label(arm) for arm in arms])
        axes[0, 0].set_ylim(len(arms) - 0.5, -0.5)
        _within_accuracies(axes[0, 0].get_xlim, axes[0, 0].set_xlim)
        theirs = any(rows.authors_mean.notna().any() for _, rows in panels)
        figure.legend(handles=[_OURS, _THEIRS][: 1 + theirs], loc="outside upper center", ncols=2)
    return closed(figure)


def _within_accuracies(limits: Callable[[], tuple[float, float]], set_limits: Callable[[float, float], object]) -> None:
    """Cut an axis where no accuracy can be, though an interval over few seeds reaches there."""
    low, high = limits()
    set_limits(max(low, -2), min(high, 102))


def _title(group: str) -> str:
    return "all classes" if group == ALL else group


def realignment(table: pd.DataFrame) -> Figure:
    """Accuracy before and after each realignment: a panel a kind of model, a slope a group of classes with intervals at both ends.

    The intervals are of the accuracies; those of the paired differences, which tell before and after apart, are narrower.

    Args:
        table: rows as ``report.table`` returns them.
    """
    titles = {("global", False): "global model", ("personal", False): "personal models", ("personal", True): "personal models, masked"}
    pairs = {scope: (before, after) for scope, after, before in REALIGNMENTS}
    table = table.assign(arm=table.algorithm + ", " + table["head"])
    with plt.rc_context(HOUSE):
        figure, axes = plt.subplots(1, len(titles), figsize=(8.4, 3.6), sharey=True)
        for ax, ((scope, masked), title) in zip(axes, titles.items(), strict=True):
            own = table[(table.scope == scope) & (table.masked == masked)]
            for k, (group, look) in enumerate(GROUPS.items()):
                ends = own[own.group == group].set_index("arm").reindex(pairs[scope])
                _slope(ax, np.arange(2) + 0.04 * (k - 1.5), ends, look)
            ax.set_xticks([0, 1], [arm.partition(", ")[2].replace(" + ", " +\n") for arm in pairs[scope]])
            ax.set_xlim(-0.3, 1.3)
            ax.set_xlabel("head: before and after")
            ax.set_title(title)
            ax.grid(axis="y", color="#dddddd", linewidth=0.6)
            ax.set_axisbelow(True)
        axes[0].set_ylabel("accuracy (%)")
        _within_accuracies(axes[0].get_ylim, axes[0].set_ylim)
        handles = [Line2D([], [], color=colour, marker=marker, label=_title(group)) for group, (colour, marker) in GROUPS.items()]
        figure.legend(handles=handles, loc="outside upper center", ncols=len(handles))
    return closed(figure)


def _slope(ax: Axes, x: np.ndarray, ends: pd.DataFrame, look: tuple[str, Marker]) -> None:
    colour, marker = look
    ax.plot(x, ends["mean"], color=colour, marker=marker, linewidth=1.2)
    for place, low, high in zip(x, ends.ci_low, ends.ci_high, strict=True):
        if pd.notna(low):
            ax.plot([place, place], [low, high], color=colour, linewidth=1.4)


def norms(rows: pd.DataFrame) -> Figure:
    """GM over all classes against the norm nu of SSE-C's rows, a line a head, and the authors' sweep hollow.

    Args:
        rows: as ``report.norms`` returns them.
    """
    with plt.rc_context(HOUSE):
        figure, ax = plt.subplots(figsize=(5.4, 3.4))
        for head, own in rows.groupby("head", sort=False):
            ((colour, marker),) = looks([head], _HEADS).values()
            own = own.sort_values("norm")
            ax.plot(own.norm, own.value, color=colour, marker=marker, label=f"ours, {head}")
        theirs = rows.dropna(subset="authors_mean").drop_duplicates("norm").sort_values("norm")
        grey: dict[str, Any] = {"color": "#555555", "linewidth": 0.8, "linestyle": "--"}
        ax.plot(theirs.norm, theirs.authors_mean, marker="o", fillstyle="none", label="the authors', head unknown", **grey)
        ax.set_xscale("log")
        ticks = sorted(set(rows.norm))
        ax.set_xticks(ticks, [f"{nu:g}" for nu in ticks])
        ax.minorticks_off()
        ax.set_xlabel("norm ν of SSE-C's rows")
        ax.set_ylabel("GM (%)")
        figure.legend(loc="outside right center")
    return closed(figure)


def classifier(cosines: pd.DataFrame) -> Figure:
    """SSE-C: the cosines between classes after the fit, and all angles before and after it beside the simplex ETF's.

    Args:
        cosines: rows as ``report.cosines`` returns them.
    """
    classes = int(cosines.class_b.max()) + 1
    fitted, zeroed = cosines[cosines.fitted], cosines[~cosines.fitted]
    ideal = -1 / (classes - 1)
    matrix = np.full((classes, classes), np.nan)
    matrix[fitted.class_a, fitted.class_b] = matrix[fitted.class_b, fitted.class_a] = fitted.cosine
    angles = {name: np.degrees(np.arccos(own.cosine.clip(-1, 1))) for name, own in (("entries set to 0", zeroed), ("fitted", fitted))}
    bins = np.linspace(min(map(min, angles.values())) - 0.5, max(map(max, angles.values())) + 0.5, 31)
    with plt.rc_context(HOUSE):
        figure, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.4))
        reach = max(abs(zeroed.cosine - ideal).max(), 1e-3)
        image = left.imshow(matrix, cmap="PuOr", vmin=ideal - reach, vmax=ideal + reach)
        left.set_xlabel("class")
        left.set_ylabel("class")
        left.set_title("SSE-C after its fit")
        figure.colorbar(image, ax=left, label=f"cosine (white: the ETF's {ideal:.3f})")
        for (name, own), colour in zip(angles.items(), ("#E69F00", "#0072B2"), strict=True):
            right.hist(own, bins=bins, color=colour, alpha=0.65, label=name)
        right.axvline(np.degrees(np.arccos(ideal)), color="black", linewidth=1, linestyle="--", label="simplex ETF")
        right.set_xlabel("angle between two classes (degrees)")
        right.set_ylabel("pairs of classes")
        right.legend()
    return closed(figure)
