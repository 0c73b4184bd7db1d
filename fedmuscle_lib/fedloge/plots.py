"""Figures of this system: one colour and marker per method everywhere, ours solid beside the
authors' hollow, with intervals over seeds.

Every function returns a closed ``Figure``; :func:`save` writes it.
"""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
import seaborn.objects as so
from matplotlib.figure import Figure

from fedmuscle_lib.core.style import Look, at_last, forest, housed, legend, looks, on_figure, save
from fedmuscle_lib.fedloge.evaluation import ALL
from fedmuscle_lib.fedloge.report import OVER_OTHERS, REALIGNMENTS, label

__all__ = [
    "STYLES",
    "classifier",
    "global_accuracy",
    "norms",
    "over_rounds",
    "personal_accuracy",
    "realignment",
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
_HEADS: dict[str, Look] = {
    "sse_c": ("#0072B2", "D"),
    "shared": ("#E69F00", "s"),
    "realigned": ("#009E73", "^"),
}
_ACCURACIES = (
    -2,
    102,
)  # limits of an axis; an interval over few seeds may reach where no accuracy can be


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
def realignment(table: pd.DataFrame) -> Figure:
    """Accuracy before and after each realignment: a panel a kind of model, a slope a group of
    classes with intervals at both ends.

    The intervals are of the accuracies; those of the paired differences, which tell before and
    after apart, are narrower.

    Args:
        table: rows as ``report.table`` returns them.
    """
    titles = {
        ("global", False): "global model",
        ("personal", False): "personal models",
        ("personal", True): "personal models, masked",
    }
    pairs = {scope: (before, after) for scope, after, before in REALIGNMENTS}
    arms = table.algorithm + ", " + table["head"]
    ends = [
        pairs[scope].index(arm) if arm in pairs[scope] else np.nan
        for scope, arm in zip(table.scope, arms, strict=True)
    ]
    rows = table.assign(end=ends).dropna(subset="end")
    rows["end"] += 0.04 * (rows.group.map(list(GROUPS).index) - 1.5)
    rows["panel"] = [titles[key] for key in zip(rows.scope, rows.masked, strict=True)]
    plot = (
        so.Plot(rows, x="end", y="mean", color="group", marker="group")
        .facet("panel", order=list(titles.values()))
        .share(x=False)
    )
    plot = plot.add(so.Line(pointsize=6), legend=False).add(
        so.Range(), ymin="ci_low", ymax="ci_high", legend=False
    )
    figure = on_figure(plot.label(x="head: before and after", y="accuracy (%)"), GROUPS, 8.4, 3.6)
    for ax, (scope, _) in zip(figure.axes, titles, strict=True):
        ax.set_xticks(
            [0, 1], [arm.partition(", ")[2].replace(" + ", " +\n") for arm in pairs[scope]]
        )
        ax.set(xlim=(-0.3, 1.3), ylim=_ACCURACIES)
        ax.grid(axis="y", linewidth=0.6)
    legend(figure, "upper center", {_title(group): look for group, look in GROUPS.items()})
    return figure


@housed
def norms(rows: pd.DataFrame) -> Figure:
    """GM over all classes against the norm nu of SSE-C's rows, a line a head, and the authors'
    sweep hollow.

    Args:
        rows: as ``report.swept`` returns them.
    """
    rows = rows[rows.group == ALL]
    look, theirs = (
        looks(rows["head"], _HEADS),
        rows.dropna(subset="authors_mean").drop_duplicates("norm").sort_values("norm"),
    )
    plot = so.Plot(rows, x="norm", y="value", color="head", marker="head").add(
        so.Line(pointsize=6), legend=False
    )
    figure = on_figure(
        plot.scale(x="log").label(x="norm ν of SSE-C's rows", y="GM (%)"), look, 5.4, 3.4
    )
    (ax,), grey = figure.axes, "#555555"
    ax.plot(
        theirs.norm,
        theirs.authors_mean,
        marker="o",
        fillstyle="none",
        color=grey,
        linewidth=0.8,
        linestyle="--",
    )
    ticks = sorted(set(rows.norm))
    ax.set_xticks(ticks, [f"{nu:g}" for nu in ticks])
    ax.minorticks_off()
    legend(
        figure,
        "right center",
        {f"ours, {head}": each for head, each in look.items()},
        {"the authors', head unknown": (grey, "o")},
    )
    return figure


@housed
def classifier(cosines: pd.DataFrame) -> Figure:
    """SSE-C: the cosines between classes after the fit, and all angles before and after it beside
    the simplex ETF's.

    Args:
        cosines: rows as ``arms.sse_c_cosines`` returns them.
    """
    ideal = -1 / cosines.class_b.max()
    fitted = cosines[cosines.fitted].pivot(index="class_b", columns="class_a", values="cosine")
    reach = max(abs(cosines.cosine[~cosines.fitted] - ideal).max(), 1e-3)
    angles = cosines.assign(angle=np.degrees(np.arccos(cosines.cosine.clip(-1, 1))))
    angles["head"] = angles.fitted.map({False: "entries set to 0", True: "fitted"})
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.4))
    bar = {"label": f"cosine (white: the ETF's {ideal:.3f})"}
    sns.heatmap(
        fitted,
        cmap="PuOr",
        vmin=ideal - reach,
        vmax=ideal + reach,
        square=True,
        rasterized=True,
        cbar_kws=bar,
        ax=left,
    )
    left.set(xlabel="class", ylabel="class", title="SSE-C after its fit")
    sns.histplot(
        angles, x="angle", hue="head", bins=30, palette=["#E69F00", "#0072B2"], alpha=0.65, ax=right
    )
    right.axvline(np.degrees(np.arccos(ideal)), color="black", linewidth=1, linestyle="--")
    right.set(
        xlabel="angle between two classes (degrees)",
        ylabel="pairs of classes",
        title="dashed: simplex ETF",
    )
    right.get_legend().set_title(None)
    return figure
