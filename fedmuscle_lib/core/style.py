"""The look of every figure, whatever the federation: the theme, colours and markers of arms, and
figures that several systems draw.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import wraps
from io import BytesIO
from itertools import cycle
from math import ceil, nan
from pathlib import Path
from textwrap import fill
from typing import Any, Literal, ParamSpec

import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
import seaborn.objects as so
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fedmuscle_lib.core.files import put

Marker = str | tuple[int, Literal[0, 1, 2], int]  # a tuple: number of rays, 1 for a star, degrees
Look = tuple[str, Marker]
_Arguments = ParamSpec("_Arguments")

# The first ones are far from each other and from most algorithms' colours, also as protanopes and
# deuteranopes see them.
_SPARE = ("#1A1AE6", "#6699CC", "#C18B70", "#E6007A", "#8800CC", "#44AA99", "#7CB342")
_STYLE = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "font.sans-serif": [
        "DejaVu Sans"
    ],  # which comes with matplotlib, so that a figure is the same on all machines
    "image.cmap": "viridis",
    "patch.force_edgecolor": False,
}
HOUSE: dict[Any, Any] = {
    **sns.axes_style("ticks", rc=_STYLE),
    **sns.plotting_context("paper", rc={"axes.titlesize": 9, "axes.labelsize": 9}),
    "legend.frameon": False,
    "legend.handlelength": 1.4,
    "legend.columnspacing": 1.4,
    "figure.constrained_layout.use": True,
    "figure.dpi": 72,
}
HALO = {"facecolor": "white", "alpha": 0.7, "linewidth": 0, "pad": 0.5}
GREY: Look = ("#555555", "o")  # what a legend explains without the colour of an arm
_LETTER = 0.075  # inches of a label's width
_PANELS = 4  # in a row that can be read on a page
_WORTH = 0.7  # a panel is clipped if it gets narrower than this share of its width


def _house(more: Mapping[Any, Any] | None = None) -> AbstractContextManager[None]:
    """The theme over matplotlib's defaults, whatever matplotlibrc a reader has."""
    return plt.style.context(["default", {**HOUSE, **(more or {})}])


def looks(arms: Iterable[str], table: Mapping[str, Look]) -> dict[str, Look]:
    """Colour and marker of each arm of a figure, "<algorithm>" or "<algorithm>, <setting>".

    What is not in the table takes a spare colour that no other arm of the figure has, one after the
    other, and the marker of its algorithm if that is there.
    """
    every = list(dict.fromkeys(arms))
    taken = {table[arm][0] for arm in every if arm in table}
    spare = cycle([colour for colour in _SPARE if colour not in taken])
    return {
        arm: table.get(arm) or (next(spare), table.get(arm.partition(", ")[0], ("", "8"))[1])
        for arm in every
    }


def save(figure: Figure, folder: Path, name: str, about: str = "") -> Path:
    """Write ``name.svg``; the same figure gives the same bytes.

    Args:
        about: the line above the figure, which says whose numbers it shows.

    Raises:
        OSError: the folder can't be written.
    """
    path, content = folder / f"{name}.svg", BytesIO()
    with _house({"svg.hashsalt": "fedmuscle"}):
        lines = fill(about, round(figure.get_figwidth() / _LETTER * 1.2))
        figure.text(0, 1, lines, va="bottom", fontsize=7.5, color="#555555", linespacing=1.3)
        figure.savefig(
            content, format="svg", metadata={"Date": None}, bbox_inches="tight", pad_inches=0.08
        )
    put(path, content.getvalue())
    # IPython keeps this beside the image, so that a page of the notebook can link the file
    setattr(figure, "_repr_mimebundle_", lambda **_: ({}, {"figure": name}))  # noqa: B010
    return path


def housed(draw: Callable[_Arguments, Figure]) -> Callable[_Arguments, Figure]:
    """Decorate what draws a figure: it is drawn in the house's theme and returned laid out and
    closed.
    """

    @wraps(draw)
    def drawn(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> Figure:
        with _house():
            return closed(draw(*args, **kwargs))

    return drawn


def closed(figure: Figure) -> Figure:
    """Lay the figure out once and for all, and close it in pyplot."""
    # with a layout engine every drawing would move the axes a little further
    figure.draw_without_rendering()
    for legend in figure.legends:
        legend.set_bbox_to_anchor(
            (0, 0, 1, 1), figure.transFigure
        )  # else it would leave its place where a figure is saved with a margin
    figure.set_layout_engine("none")
    plt.close(figure)
    return figure


def on_figure(plot: so.Plot, look: Mapping[str, Look], width: float, height: float) -> Figure:
    """Draw a plot on a new figure of so many inches; ``color``, ``marker`` and ``pointsize`` are
    arms, which have their look.
    """
    figure = plt.figure(figsize=(width, height))
    colours, markers = ({arm: each[k] for arm, each in look.items()} for k in (0, 1))
    sizes = {
        arm: 8 if marker == "*" or isinstance(marker, tuple) else 6
        for arm, marker in markers.items()
    }  # a star fills less
    scales = {
        "color": so.Nominal(colours),
        "marker": so.Nominal(markers),
        "pointsize": so.Nominal(sizes),
    }
    plot.scale(**scales).theme(HOUSE).on(figure).plot()
    return figure


def forest(
    rows: pd.DataFrame,
    look: Mapping[str, Look],
    share: bool = True,
    theirs: str = "",
    clip: bool = False,
) -> Figure:
    """Draw a panel for each ``panel`` and in it a line for each ``line``: points at ``value`` with
    their 95 % intervals, and a line at 0.

    Panels of the same unit have the same limits. Intervals end in caps that are higher than a
    marker.

    Args:
        rows: panel, unit, line, arm, value, ci_low, ci_high and, where it is published, theirs,
            which is drawn hollow.
        look: of each arm.
        share: whether all panels have the same lines, and stand beside each other, four in a row at
            most. Otherwise they stand below each other, each as high as its lines.
        theirs: what the legend calls published values; without it the figure has no legend.
        clip: cut off arms that would squeeze all others; an arrow and a number say where they are.
    """
    units = rows.drop_duplicates("panel").set_index("panel").unit
    n_columns = ceil(len(units) / ceil(len(units) / _PANELS)) if share else 1
    width = 1.5 if n_columns < len(units) else max(1.9, 4 / n_columns)  # of a panel, in inches
    letters = rows.line.str.split("\n").explode().str.len().max()
    arms = rows.groupby(["panel", "line"]).arm.nunique().max()
    line = max(
        0.12 + 0.14 * (rows.line.str.count("\n").max() + 1), 0.1 + 0.15 * arms
    )  # inches of its height
    lines = rows.groupby("panel", sort=False).line.nunique()
    heights = pd.Series([rows.line.nunique()] * ceil(len(units) / n_columns)) if share else lines
    size = width * n_columns + _LETTER * letters, 1.1 * len(heights) + line * heights.sum()
    beside = so.Dodge(empty="drop", by=["color"])
    plot = so.Plot(
        rows.reset_index(drop=True), x="value", y="line", color="arm", marker="arm", pointsize="arm"
    )
    plot = plot.facet("panel", wrap=n_columns if n_columns < len(units) else None).share(
        x=False, y=share
    )
    if "theirs" in rows:
        plot = plot.add(so.Dot(fill=False, stroke=1), beside, x="theirs", legend=False)
    plot = plot.add(so.Range(linewidth=1.6), beside, xmin="ci_low", xmax="ci_high", legend=False)
    plot = plot.add(so.Dot(edgecolor="white"), beside, legend=False).label(x="", y="")
    for end in ("ci_low", "ci_high"):
        plot = plot.add(so.Dot(marker="|", pointsize=9, stroke=1.2), beside, x=end, legend=False)
    figure = on_figure(plot, look, *size)
    if not share and (grid := figure.axes[0].get_gridspec()):
        grid.set_height_ratios(heights + 1)
    axes = pd.Series(figure.axes, index=units)
    for unit, ax in axes.items():
        ax.axvline(0, color="black", linewidth=0.8, zorder=0)
        ax.grid(axis="x", linewidth=0.6)
        ax.set_xlabel(unit, visible=True)
        ax.tick_params(axis="y", length=0)
    for unit, same in axes.groupby(level=0):
        lows, highs = zip(*(ax.get_xlim() for ax in same), strict=True)
        low, high = _clipped(rows[rows.unit == unit]) if clip else (min(lows), max(highs))
        for ax in same:
            ax.set_xlim(low, high)
            if clip:
                _point_outside(
                    ax, rows[rows.panel == ax.get_title()], look, list(dict.fromkeys(rows.line))
                )
    if theirs and rows.theirs.notna().any():
        legend(figure, "upper center", {"ours": GREY}, {theirs: GREY}, "")
    return figure


def _clipped(rows: pd.DataFrame) -> tuple[float, float]:
    """Limits of the arms that don't squeeze the others: the arm that reaches farthest is left out
    for as long as that is worth it.
    """
    kept = [(0.0, 0.0)]
    ends = rows.assign(
        low=rows[["value", "ci_low"]].min(axis=1), high=rows[["value", "ci_high"]].max(axis=1)
    ).groupby("arm")
    kept += list(zip(ends.low.min(), ends.high.max(), strict=True))
    kept += [(value, value) for value in rows.get("theirs", pd.Series(dtype=float)).dropna()]

    def width(those: list[tuple[float, float]]) -> float:
        return max(high for _, high in those) - min(low for low, _ in those)

    while len(kept) > 3:
        fewer = min(([*kept[:i], *kept[i + 1 :]] for i in range(1, len(kept))), key=width)
        if width(fewer) > _WORTH * width(kept):
            break
        kept = fewer
    margin = 0.06 * width(kept) or 1.0
    return min(low for low, _ in kept) - margin, max(high for _, high in kept) + margin


def _point_outside(
    ax: Axes, rows: pd.DataFrame, look: Mapping[str, Look], order: Sequence[str]
) -> None:
    """Draw arrows at the panel's edges to what lies outside, with the number of a point."""
    edges = ax.get_xlim()
    for row in rows.itertuples():
        told = [(value, f"{value:+.0f}") for value in (row.value, getattr(row, "theirs", nan))]
        for side, edge in enumerate(edges):
            beyond = [
                text
                for x, text in [*told, ((row.ci_low, row.ci_high)[side], "")]
                if (x > edge if side else x < edge)
            ]
            if beyond:
                where, colour = (edge, order.index(row.line)), look[row.arm][0]
                ax.plot(*where, marker="<>"[side], color=colour, markersize=5, clip_on=False)
                style: dict[str, Any] = {
                    "fontsize": 7,
                    "bbox": HALO,
                    "va": "center",
                    "ha": ("left", "right")[side],
                }
                ax.annotate(
                    beyond[0],
                    where,
                    (6 - 12 * side, 0),
                    textcoords="offset points",
                    color=colour,
                    **style,
                )


def at_last(ax: Axes, rows: pd.DataFrame, look: Mapping[str, Look]) -> None:
    """Draw the 95 % intervals of the last round right of a panel's lines, beside each other: bands
    of many lines hide one another.

    Args:
        rows: the panel's: algorithm, round, mean, ci_low, ci_high.
    """
    last, step = rows["round"].max(), 0.02 * (rows["round"].max() - rows["round"].min())
    for i, row in enumerate(
        rows[rows["round"] == last].sort_values("mean", ascending=False).itertuples(), start=1
    ):
        colour, marker = look[row.algorithm]
        ends = [[row.mean - row.ci_low], [row.ci_high - row.mean]]
        ax.errorbar(
            last + i * step,
            row.mean,
            ends,
            color=colour,
            marker=marker,
            markersize=3.5,
            linewidth=1.2,
            capsize=2,
        )


def legend(
    figure: Figure,
    where: str,
    look: Mapping[str, Look],
    hollow: Mapping[str, Look] | None = None,
    line: Any = "--",
) -> None:
    """Draw a legend outside of the panels, in rows above them or in a column beside them; hollow
    markers have lines of their own.
    """
    handles = [
        Line2D([], [], color=colour, marker=marker, label=text)
        for text, (colour, marker) in look.items()
    ]
    for text, (colour, marker) in (hollow or {}).items():
        handles.append(
            Line2D(
                [], [], color=colour, marker=marker, label=text, fillstyle="none", linestyle=line
            )
        )
    place: Any = f"outside {where}"
    wide = sum(_LETTER * len(str(handle.get_label())) + 0.4 for handle in handles)  # inches
    rows = ceil(wide / figure.get_figwidth())
    figure.legend(
        handles=handles,
        loc=place,
        ncols=ceil(len(handles) / rows) if where == "upper center" else 1,
    )


def point(ax: Axes, x: float, y: float, style: Look, **options: Any) -> None:
    """Draw one marker in its arm's style."""
    colour, marker = style
    is_star = marker == "*" or isinstance(marker, tuple)
    ax.plot(
        x, y, marker=marker, color=colour, markersize=10 if is_star else 7, **options
    )  # a star fills less of its circle
