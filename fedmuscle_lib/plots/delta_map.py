"""The map of Delta against how much local training forgets, a panel a number of alignment steps."""

from __future__ import annotations

from collections.abc import Iterable
from string import ascii_uppercase
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.transforms import ScaledTranslation
from scipy.optimize import isotonic_regression

from fedmuscle_lib.core.style import Look, closed, housed, point
from fedmuscle_lib.fedmuscle.arms import BASELINE, TUNED_BASELINE, UNFORGETTING, label
from fedmuscle_lib.plots.palette import styles

_LED, _ALONE = "fedmuscle", "self"  # between them stands what peers give
_GIVEN, _TAKEN = "#A9D3F0", "#F3C8A5"  # pale forms of their colours
_BETTER = "#F1F1EC"
_LEAD = "#777777"  # from the arms of a place that was moved to where it is
_SIDE_BY_SIDE = ("frozen_peers", _ALONE, _LED, "anchored")  # the others, which align nobody, stand on the place's line
_APART = 6.0  # points between neighbours at a place
_WIDE = 30.0  # points between neighbouring places


@housed
def delta_map(rows: pd.DataFrame, paper: dict[str, int]) -> Figure:
    """Delta of each arm against how much local training forgets; a panel a number of alignment steps, and an axis of steps above them.

    A place is a letter, and its arms stand side by side. On the dashed diagonal an arm is as good as a backbone that is left as it was
    pretrained. There a place has its exact position; the arms of places that are close to each other are moved apart. The bar between
    ``self`` and FedMuscle is live peers in place of one's own frozen copy. The paper stands on the axis of steps alone. Places where
    Delta is undefined, since a metric of local training is 0, are named in their panels.

    Args:
        rows: as ``report.delta_map`` returns them.
        paper: alignment steps of a user in the paper, by the name of their mark.
    """
    every = rows[rows.algorithm != BASELINE]
    steps, rows = sorted(set(every.steps)), every.dropna(subset=["forgotten", "delta"])
    letters = dict(zip(rows.groupby("place").forgotten.mean().sort_values().index, ascii_uppercase, strict=False))
    look = styles(every.algorithm)
    figure = plt.figure(figsize=(2.6 + max(5, 3.3 * len(steps)), 5.4))
    grid = figure.add_gridspec(2, len(steps), height_ratios=(0.09, 1))
    _axis_of_steps(figure.add_subplot(grid[0, :]), steps, paper)
    wide, high = _limits(rows)
    panels = [figure.add_subplot(grid[1, k], xlim=wide, ylim=high) for k in range(len(steps))]
    for ax, n in zip(panels, steps, strict=True):
        _ground(ax, look[UNFORGETTING][0])
        ax.set_title(f"{n:,} alignment steps a user", pad=18)
        ax.set_xlabel("what local training forgets:\nΔ of head only over local training (%)")
        ax.tick_params(labelleft=ax is panels[0])
    panels[0].set_ylabel("Δ over local training (%)")
    figure.legend(handles=_legend(look, letters), loc="outside right center", labelspacing=0.75)
    closed(figure)  # places can be kept apart once the axes stay where they are
    for ax, n in zip(panels, steps, strict=True):
        own = rows[rows.steps == n]
        if absent := [place for place in dict.fromkeys(every[every.steps == n].place) if place not in set(own.place)]:
            ax.text(0.02, 0.02, "\n".join(["Δ is undefined:", *absent]), transform=ax.transAxes, fontsize=8, va="bottom")
        places = own.drop_duplicates("place").sort_values("forgotten")
        exact = ax.transData.transform(np.stack([places.forgotten, 0 * places.forgotten], 1))[:, 0] * 72 / figure.dpi
        for place, aside in zip(places.place, _spread(exact, _WIDE) - exact, strict=True):
            _place(ax, own[own.place == place].set_index("algorithm"), letters[place], look, aside)
    return figure


def _spread(positions: np.ndarray, gap: float) -> np.ndarray:
    """The positions nearest to these ascending ones, by squared distance, that are at least ``gap`` apart."""
    places = gap * np.arange(len(positions))
    return isotonic_regression(positions - places).x + places


def _limits(rows: pd.DataFrame) -> tuple[tuple[float, float], tuple[float, float]]:
    """Limits of both axes: all places, points and intervals, and 0."""
    x = [0.0, *rows.forgotten]
    y = [0.0, *rows[["delta", "ci_low", "ci_high"]].stack()]
    return _wider(min(x), max(x), 0.13), _wider(min(y), max(y), 0.06)


def _wider(low: float, high: float, by: float) -> tuple[float, float]:
    margin = by * max(high - low, 1.0)
    return low - margin, high + margin


def _ground(ax: Axes, colour: str) -> None:
    """Local training, the horizontal; head only, the diagonal; and where an arm is better than both."""
    x = np.array([*ax.get_xlim(), 0.0])
    x.sort()
    ax.fill_between(x, np.maximum(x, 0), 1e6, color=_BETTER, linewidth=0, zorder=0)
    ax.axhline(0, color="black", linewidth=1, zorder=1)
    ax.plot(x, x, color=colour, linewidth=1.2, dashes=(4, 3), zorder=1)


def _place(ax: Axes, rows: pd.DataFrame, letter: str, look: dict[str, Look], aside: float) -> None:
    """The arms of a place, which are ``rows``' index, so many points to the right of where it is; head only stands where it is."""
    x = rows.forgotten.iloc[0]

    def moved(points: float) -> dict[str, Any]:
        return {"transform": ax.transData + ScaledTranslation(points / 72, 0, ax.figure.dpi_scale_trans)}

    style: dict[str, Any] = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points", "ha": "center", "weight": "bold"}
    ax.annotate(letter, (x, 1), (aside, 3), **style)
    ax.plot([x, x], ax.get_ylim(), color="#d8d8d8", linewidth=0.8, zorder=0.5, **moved(aside))
    ax.annotate("", (x, x), (aside, 0), textcoords="offset points", arrowprops={"arrowstyle": "-", "color": _LEAD, "shrinkB": 0})
    if {_LED, _ALONE} <= set(rows.index):
        ends = [rows.delta[_ALONE], rows.delta[_LED]]
        colour = _GIVEN if ends[1] > ends[0] else _TAKEN
        ax.plot([x, x], ends, color=colour, linewidth=9, solid_capstyle="butt", zorder=2, **moved(aside))
    if TUNED_BASELINE in rows.index:  # a level, which shows behind the others
        level: dict[str, Any] = {"color": look[TUNED_BASELINE][0], "markersize": 24, "markeredgewidth": 1.6}
        ax.plot(x, rows.delta[TUNED_BASELINE], marker="_", zorder=2.5, **level, **moved(aside))
    for name, row in rows.iterrows():
        beside = aside + _APART * (_SIDE_BY_SIDE.index(name) - 1.5) if name in _SIDE_BY_SIDE else aside
        where = moved(0 if name == UNFORGETTING else beside)
        colour, marker = look[str(name)]
        if pd.notna(row.ci_low):
            ax.plot([x, x], [row.ci_low, row.ci_high], color=colour, linewidth=1.4, zorder=3, **where)
        edge = {"markeredgecolor": "white", "markeredgewidth": 0.5}
        point(ax, x, row.delta, (colour, marker), zorder=5 if name == _LED else 4, **edge, **where)


def _axis_of_steps(ax: Axes, steps: Iterable[int], paper: dict[str, int]) -> None:
    """A logarithmic axis of alignment steps: the map's above it, the paper's hollow and below."""
    every = [*steps, *paper.values()]
    ax.set(xscale="log", xlim=(min(every) / 2, 2 * max(every)), ylim=(-1, 1), yticks=[])
    ax.set_xticks([], minor=True)
    ax.set_xticks([])
    ax.spines[:].set_visible(False)
    ax.axhline(0, color="#888888", linewidth=1)
    marks: list[tuple[int, str, dict[str, Any], int]] = [(n, f"{n:,}", {"color": "black"}, 6) for n in steps]
    marks += [(n, f"{name}: {n:,}", {"color": "black", "fillstyle": "none"}, -13) for name, n in paper.items()]
    for n, text, style, above in marks:
        ax.plot(n, 0, marker="o", markersize=6, **style)
        ax.annotate(text, (n, 0), (0, above), textcoords="offset points", ha="center", fontsize=8)
    ax.set_title("alignment steps a user, on a logarithmic axis", loc="left", fontsize=8, color="#555555")


def _legend(look: dict[str, Look], letters: dict[str, str]) -> list[Artist]:
    lines: dict[str, Any] = {UNFORGETTING: "--", TUNED_BASELINE: "-"}
    arms = [
        Line2D([], [], color=colour, marker=marker, linestyle=lines.get(name, ""), label=label(name), markersize=7)
        for name, (colour, marker) in look.items()
    ]
    baseline = Line2D([], [], color="black", label=label(BASELINE))
    lead = Line2D([], [], color=_LEAD, linewidth=1, label="leads to where a place is")
    meanings = {_BETTER: "better than local and head only", _GIVEN: "FedMuscle above self", _TAKEN: "FedMuscle below self"}
    patches = [Patch(facecolor=colour, edgecolor="#bbbbbb", linewidth=0.5, label=text) for colour, text in meanings.items()]
    signs = {place: rf"$\mathrm{{{letter}}}$" for place, letter in letters.items()}
    places = [Line2D([], [], color="black", marker=sign, linestyle="", label=place, markersize=7) for place, sign in signs.items()]
    return [*arms, baseline, lead, *patches, *places]
