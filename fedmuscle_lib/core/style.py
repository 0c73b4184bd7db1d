"""The look of every figure, whatever the federation: how arms get colours and markers, and the parts that several figures share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import cycle
from pathlib import Path
from typing import Any, Literal

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

Marker = str | tuple[int, Literal[0, 1, 2], int]  # a tuple: number of rays, 1 for a star, degrees

_SPARE = ("#44AA99", "#7CB342", "#6699CC", "#C18B70", "#1A1AE6", "#8800CC", "#E6007A")
HOUSE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9,
    "legend.frameon": False,
    "legend.handlelength": 1.4,
    "legend.columnspacing": 1.4,
    "figure.constrained_layout.use": True,
}
HALO = {"facecolor": "white", "alpha": 0.7, "linewidth": 0, "pad": 0.5}


def looks(arms: Iterable[str], table: Mapping[str, tuple[str, Marker]]) -> dict[str, tuple[str, Marker]]:
    """Colour and marker of each arm of a figure, "<algorithm>" or "<algorithm>, <setting>".

    What is not in the table takes a spare colour that no other arm of the figure has, one after the other, and the marker of its
    algorithm if that is there.
    """
    every = list(dict.fromkeys(arms))
    taken = {table[arm][0] for arm in every if arm in table}
    spare = cycle([colour for colour in _SPARE if colour not in taken])
    return {arm: table.get(arm) or (next(spare), table.get(arm.partition(", ")[0], ("", "8"))[1]) for arm in every}


def save(figure: Figure, folder: Path, name: str) -> Path:
    """Write ``name.svg``; the same figure gives the same bytes.

    Raises:
        OSError: the folder can't be written.
    """
    path = folder / f"{name}.svg"
    with plt.rc_context({"svg.hashsalt": "fedmuscle"}):
        figure.savefig(path, metadata={"Date": None})
    return path


def strip(ax: Axes, rows: pd.DataFrame, look: Mapping[str, tuple[str, Marker]], zero: bool = True) -> None:
    """Draw one row an arm, in the order of ``look``: a point at ``value`` and its 95 % interval as a bar; with ``zero`` a line at 0.

    Rows that have a ``line`` stand there, so that an arm can have several.
    """
    if zero:
        ax.axvline(0, color="black", linewidth=0.8)
    ax.grid(axis="x", color="#dddddd", linewidth=0.6)
    ax.set_axisbelow(True)
    arms = list(look)
    for row in rows.itertuples():
        y = row.line if "line" in rows else arms.index(row.algorithm)
        if pd.notna(row.ci_low):
            ax.plot([row.ci_low, row.ci_high], [y, y], color=look[row.algorithm][0], linewidth=2, solid_capstyle="butt")
        point(ax, row.value, y, look[row.algorithm], markeredgecolor="white", markeredgewidth=0.6)


def point(ax: Axes, x: float, y: float, style: tuple[str, Marker], **options: Any) -> None:
    """Draw one marker in its arm's style."""
    colour, marker = style
    is_star = marker == "*" or isinstance(marker, tuple)
    ax.plot(x, y, marker=marker, color=colour, markersize=10 if is_star else 7, **options)  # a star fills less of its circle


def closed(figure: Figure) -> Figure:
    """Lay the figure out once and for all, and close it in pyplot."""
    # with a layout engine every drawing would move the axes a little further
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    plt.close(figure)
    return figure
