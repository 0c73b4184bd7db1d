"""Figures: one colour and marker per algorithm everywhere, ours solid beside the paper's hollow, intervals wherever seeds give one.

Every function returns a closed ``Figure``, so that a notebook shows it once; :func:`save` writes files that depend on nothing but it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import cycle
from math import ceil
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import Bbox

from fedmuscle_lib.report import BASELINE, added, algorithm_of, label

Marker = str | tuple[int, int, int]  # a tuple: number of rays, 1 for a star, degrees

# Okabe and Ito's colours, some of Tol's, and others far from them, also as protanopes and deuteranopes see them. Sixteen are more
# than colour alone can tell apart, so no two share a marker.
STYLES: dict[str, tuple[str, Marker]] = {
    "local": ("#555555", "o"),
    "fedmuscle": ("#0072B2", "D"),
    "gramian": ("#E69F00", "s"),
    "pairwise": ("#009E73", "^"),
    "shuffled": ("#CC79A7", "X"),
    "frozen_peers": ("#56B4E9", "P"),
    "self": ("#D55E00", "v"),
    "head_only": ("#999933", "h"),
    "anchored": ("#882255", ">"),
    "sage": ("#332288", "<"),
    "fedhenn": ("#EE6677", "p"),
    "cofed": ("#994F00", "*"),
    "feddf": ("#1A85FF", "d"),
    "fedrcl": ("#000000", (4, 1, 0)),
    "simclr": ("#AA4499", (8, 1, 0)),
    "pseudo_labeling": ("#661100", (4, 1, 45)),
}
_SPARE = ("#8800CC", "#C18B70", "#E6007A", "#117733", "#1A1AE6", "#44AA99", "#7CB342", "#6699CC")
_PANELS = 8  # of users in a row that can be read
_HOUSE = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9,
    "legend.frameon": False,
    "legend.handlelength": 1.4,
    "legend.columnspacing": 1.4,
    "figure.constrained_layout.use": True,
}
_HALO = {"facecolor": "white", "alpha": 0.7, "linewidth": 0, "pad": 0.5}


def styles(arms: Iterable[str]) -> dict[str, tuple[str, Marker]]:
    """Colour and marker of each arm of a figure.

    What is not in the table takes a spare colour, one after the other, and the marker of its algorithm if that is there.
    """
    spare = cycle(_SPARE)
    return {arm: STYLES.get(arm) or (next(spare), STYLES.get(algorithm_of(arm), ("", "8"))[1]) for arm in dict.fromkeys(arms)}


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write ``name.png`` (150 dpi) and ``name.svg``; the same figure gives the same bytes.

    Raises:
        OSError: the folder can't be written.
    """
    paths = [folder / f"{name}.png", folder / f"{name}.svg"]
    with plt.rc_context({"svg.hashsalt": "fedmuscle"}):
        figure.savefig(paths[0], dpi=150)
        figure.savefig(paths[1], metadata={"Date": None})
    return paths


# --- Delta per public set: Figure 2 ------------------------------------------------------------------------------------------


def figure2(delta: pd.DataFrame, algorithms: Sequence[str] = ("fedmuscle", "gramian", "pairwise")) -> Figure:
    """Figure 2: Delta of each objective for each public set, ours solid with 95 % intervals, the paper's hatched beside it.

    Args:
        delta: rows as ``report.delta`` returns them.
        algorithms: which bars, from left to right.
    """
    publics = list(dict.fromkeys(delta.public))
    rows = delta.set_index(["public", "algorithm"])
    colours = {name: colour for name, (colour, _) in styles(algorithms).items()}
    slot = 0.86 / len(algorithms)  # of a public set's unit width
    with plt.rc_context(_HOUSE):
        figure, ax = plt.subplots(figsize=(6.8, 3.4))
        for k, name in enumerate(algorithms):
            for group, public in enumerate(publics):
                if (public, name) in rows.index:
                    left = group - 0.43 + k * slot
                    _pair_of_bars(ax, left, slot, rows.loc[(public, name)], colours[name])
        ax.axhline(0, color="black", linewidth=0.8)
        ax.set_xticks(range(len(publics)), publics)
        ax.set_xlabel("public set")
        ax.set_ylabel("Δ over local training (%)")
        handles = [Patch(color=colours[name], label=label(name)) for name in algorithms]
        handles += [Patch(color="#555555", label="ours"), Patch(facecolor="white", edgecolor="#555555", hatch="////", label="the paper's")]
        figure.legend(handles=handles, loc="outside upper center", ncols=len(handles))
    return _closed(figure)


def _pair_of_bars(ax: Axes, left: float, slot: float, row: pd.Series, colour: str) -> None:
    width = 0.46 * slot
    ax.bar(left, row.delta, width, align="edge", color=colour)
    _whisker(ax, left + width / 2, row.delta, row.ci_low, row.ci_high)
    if pd.notna(row.paper_delta):
        ax.bar(left + width, row.paper_delta, width, align="edge", facecolor="white", edgecolor=colour, hatch="////", linewidth=1)


def _whisker(ax: Axes, x: float, value: float, low: float, high: float) -> None:
    if pd.notna(low):
        ax.errorbar(x, value, yerr=[[value - low], [high - value]], color="black", linewidth=1, capsize=2.5)


# --- controls ----------------------------------------------------------------------------------------------------------------


def controls(differences: pd.DataFrame, delta: pd.DataFrame) -> Figure:
    """One panel a user, metric relative to local training in points, and one for Delta; an arm a line, with its 95 % interval.

    Args:
        differences: rows as ``report.over_baseline`` returns them.
        delta: rows as ``report.delta`` returns them.
    """
    arms = list(dict.fromkeys(differences.algorithm))
    users = differences.drop_duplicates("user")
    n_rows = ceil((len(users) + 1) / _PANELS)
    n_columns = ceil((len(users) + 1) / n_rows)
    with plt.rc_context(_HOUSE):
        size = (1.55 * (n_columns + 1), n_rows * (0.95 + 0.36 * len(arms)))
        figure, axes = plt.subplots(n_rows, n_columns, figsize=size, sharey=True, squeeze=False)
        axes[0, 0].set_yticks(range(len(arms)), [label(arm) for arm in arms])
        axes[0, 0].set_ylim(len(arms) - 0.5, -0.5)
        *panels, last = axes.flat[: len(users) + 1]
        for ax, user in zip(panels, users.itertuples(), strict=True):
            rows = differences[differences.user == user.user].rename(columns={"difference": "value"})
            _strip(ax, rows, arms)
            ax.set_title(f"user {user.user}: {user.model}\n{user.task}, {user.metric}")
            ax.set_xlabel("points over local")
            ax.sharex(panels[0])
        _strip(last, delta[delta.algorithm.isin(arms)].rename(columns={"delta": "value"}), arms)
        last.set_title("all users")
        last.set_xlabel("Δ (%)")
        last.set_facecolor("#f4f4f4")
        for ax in axes.flat[len(users) + 1 :]:
            ax.set_axis_off()
    return _closed(figure)


def _strip(ax: Axes, rows: pd.DataFrame, arms: Sequence[str]) -> None:
    ax.axvline(0, color="black", linewidth=0.8)
    ax.grid(axis="x", color="#dddddd", linewidth=0.6)
    ax.set_axisbelow(True)
    look = styles(arms)
    for row in rows.itertuples():
        y = arms.index(row.algorithm)
        if pd.notna(row.ci_low):
            ax.plot([row.ci_low, row.ci_high], [y, y], color=look[row.algorithm][0], linewidth=2, solid_capstyle="butt")
        _point(ax, row.value, y, look[row.algorithm], markeredgecolor="white", markeredgewidth=0.6)


def _point(ax: Axes, x: float, y: float, style: tuple[str, Marker], **options: object) -> None:
    colour, marker = style
    is_star = marker == "*" or isinstance(marker, tuple)
    ax.plot(x, y, marker=marker, color=colour, markersize=10 if is_star else 7, **options)  # a star fills less of its circle


# --- Table 1 -----------------------------------------------------------------------------------------------------------------


def table1(delta: pd.DataFrame) -> Figure:
    """One panel a public set: Delta of every algorithm with its 95 % interval, the paper's hollow; controls and ours below a line.

    Args:
        delta: rows as ``report.delta`` returns them.
    """
    arms = sorted(dict.fromkeys(delta.algorithm), key=added)
    look, publics = styles(arms), list(dict.fromkeys(delta.public))
    with plt.rc_context(_HOUSE):
        size = (2.4 * len(publics) + 1.6, 0.8 + 0.26 * len(arms))
        figure, axes = plt.subplots(1, len(publics), figsize=size, sharex=True, sharey=True, squeeze=False)
        for ax, public in zip(axes[0], publics, strict=True):
            rows = delta[delta.public == public]
            for row in rows.itertuples():
                _point(ax, row.paper_delta, arms.index(row.algorithm), look[row.algorithm], fillstyle="none")
            _strip(ax, rows.rename(columns={"delta": "value"}), arms)
            ax.axhline(sum(not added(arm) for arm in arms) - 0.5, color="#888888", linewidth=0.8, linestyle="--")
            ax.set_title(public)
            ax.set_xlabel("Δ over local training (%)")
        axes[0, 0].set_yticks(range(len(arms)), [label(arm) for arm in arms])
        axes[0, 0].invert_yaxis()
        ours = Line2D([], [], color="#555555", marker="o", label="ours, with 95 % interval")
        theirs = Line2D([], [], color="#555555", marker="o", fillstyle="none", linestyle="", label="the paper's")
        figure.legend(handles=[ours, theirs], loc="outside upper center", ncols=2)
    return _closed(figure)


def agreement(delta: pd.DataFrame, ranks: pd.DataFrame) -> Figure:
    """Our Delta against the paper's, a point an algorithm that has both with its 95 % interval; one panel a public set.

    Args:
        delta: rows as ``report.delta`` returns them.
        ranks: rows as ``report.rank_agreement`` returns them; their rho is in the titles.
    """
    look = styles(delta.algorithm)
    with plt.rc_context(_HOUSE):
        figure, axes = plt.subplots(1, len(ranks), figsize=(3.4 * len(ranks), 3.6), sharey=True, squeeze=False)
        panels = {public: rows.dropna(subset=["delta", "paper_delta"]) for public, rows in delta.groupby("public")}
        for ax, rank in zip(axes[0], ranks.itertuples(), strict=True):
            ax.axhline(0, color="#dddddd", linewidth=0.8, zorder=0)
            ax.axvline(0, color="#dddddd", linewidth=0.8, zorder=0)
            for row in panels[rank.public].itertuples():
                ax.plot([row.paper_delta] * 2, [row.ci_low, row.ci_high], color=look[row.algorithm][0], linewidth=1)
                _point(ax, row.paper_delta, row.delta, look[row.algorithm], markeredgecolor="white", markeredgewidth=0.6)
            ax.set_title(f"{rank.public}: ρ = {rank.rho:+.2f}" if pd.notna(rank.rho) else rank.public)
            ax.set_xlabel("the paper's Δ over local training (%)")
        axes[0, 0].set_ylabel("our Δ over local training (%)")
        _closed(figure)  # names can be kept apart once the axes stay where they are
        for ax, rank in zip(axes[0], ranks.itertuples(), strict=True):
            _name_points(ax, panels[rank.public], look)
    return figure


def _name_points(ax: Axes, rows: pd.DataFrame, look: dict[str, tuple[str, Marker]]) -> None:
    """Beside each point its algorithm, as much higher as it takes to cover neither another name nor a point."""
    points = ax.transData.transform(rows[["paper_delta", "delta"]])
    taken = [Bbox.from_bounds(x - 6, y - 6, 12, 12) for x, y in points]
    for row in rows.sort_values("delta").itertuples():
        is_right = row.paper_delta > np.mean(ax.get_xlim())
        name = ax.annotate(
            label(row.algorithm),
            (row.paper_delta, row.delta),
            xytext=(-6 if is_right else 6, 0),
            textcoords="offset points",
            ha="right" if is_right else "left",
            va="center",
            color=look[row.algorithm][0],
            fontsize=7,
            bbox=_HALO,
        )
        while any(name.get_window_extent().overlaps(other) for other in taken):
            name.xyann = (name.xyann[0], name.xyann[1] + 1)
        taken.append(name.get_window_extent())


# --- training ----------------------------------------------------------------------------------------------------------------


def training_curve(curve: pd.DataFrame) -> Figure:
    """Delta over communication rounds, a line an algorithm with its 95 % band; one panel a public set.

    Args:
        curve: rows as ``report.curve`` returns them.
    """
    curve = curve[curve.algorithm != BASELINE]
    look, publics = styles(curve.algorithm), list(dict.fromkeys(curve.public))
    with plt.rc_context(_HOUSE):
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
    return _closed(figure)


# --- the toy example: Figure 6 -----------------------------------------------------------------------------------------------


def figure6(anchor: np.ndarray, vectors: np.ndarray, weights: dict[str, np.ndarray], images: Sequence[str]) -> Figure:
    """Figure 6: the sums of the other models' vectors, as arrows in the plane whose width is their term's share of the loss's sum.

    Args:
        anchor: (2,), the anchor's unit vector, which is ``images[0]``'s.
        vectors: (2, b, 2), the unit vectors of models 2 and 3, a row an image.
        weights: title of a panel -> (b, b) shares of the tuples (j_2, j_3), which sum to 1.
        images: b names.
    """
    with plt.rc_context(_HOUSE):
        figure, axes = plt.subplots(1, len(weights), figsize=(4.4 * len(weights), 4.6), sharex=True, sharey=True)
        for ax, (title, share) in zip(np.atleast_1d(axes), weights.items(), strict=True):
            for j2, j3 in np.ndindex(share.shape):
                end = vectors[0, j2] + vectors[1, j3]
                _arrow(ax, end, "#0072B2" if j2 == j3 == 0 else "#D55E00", width=0.5 + 30 * share[j2, j3])
                _at_tip(ax, end, f"{images[j2]}+{images[j3]} {share[j2, j3]:.0%}")
            _arrow(ax, anchor, "black", width=1.5)
            ax.annotate("anchor", anchor / 2, xytext=(-5, 0), textcoords="offset points", fontsize=8, ha="right")
            ax.set(title=title, aspect="equal", xticks=[], yticks=[])
            ax.margins(0.16)
            ax.spines[:].set_visible(False)
    return _closed(figure)


def _arrow(ax: Axes, end: np.ndarray, colour: str, width: float) -> None:
    head = {"headwidth": 5 + 1.5 * width, "headlength": 5 + width}
    ax.annotate("", end, xytext=(0, 0), arrowprops={"width": width, **head, "color": colour, "alpha": 0.7, "linewidth": 0, "shrink": 0})
    ax.plot(*np.stack([np.zeros(2), end], axis=-1), alpha=0)  # annotations don't extend the axes' limits


def _at_tip(ax: Axes, end: np.ndarray, text: str) -> None:
    away = end / np.linalg.norm(end)
    sides = {"ha": ("right", "center", "left")[1 + int(round(away[0]))], "va": ("top", "center", "bottom")[1 + int(round(away[1]))]}
    ax.annotate(text, end, xytext=4 * away, textcoords="offset points", fontsize=8, bbox=_HALO, **sides)


def _closed(figure: Figure) -> Figure:
    # laid out once and for all: every drawing would move the axes a little further
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    plt.close(figure)
    return figure
