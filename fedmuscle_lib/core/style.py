"""The look of every figure, whatever the federation: the theme, colours and markers of arms, and figures that several systems draw."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from io import BytesIO
from itertools import cycle
from math import ceil
from pathlib import Path
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

_SPARE = ("#44AA99", "#7CB342", "#6699CC", "#C18B70", "#1A1AE6", "#8800CC", "#E6007A")
_STYLE = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "font.sans-serif": ["DejaVu Sans"],  # which comes with matplotlib, so that a figure is the same on all machines
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
}
HALO = {"facecolor": "white", "alpha": 0.7, "linewidth": 0, "pad": 0.5}
OURS = {"ours, with 95 % interval": ("#555555", "o")}
_LETTER = 0.075  # inches of a label's width


def looks(arms: Iterable[str], table: Mapping[str, Look]) -> dict[str, Look]:
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
    path, content = folder / f"{name}.svg", BytesIO()
    with plt.rc_context({"svg.hashsalt": "fedmuscle"}):
        figure.savefig(content, format="svg", metadata={"Date": None})
    put(path, content.getvalue())
    return path


def housed(draw: Callable[_Arguments, Figure]) -> Callable[_Arguments, Figure]:
    """Decorate what draws a figure: it is drawn in the house's theme and returned laid out and closed."""

    @wraps(draw)
    def drawn(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> Figure:
        with plt.rc_context(HOUSE):
            return closed(draw(*args, **kwargs))

    return drawn


def closed(figure: Figure) -> Figure:
    """Lay the figure out once and for all, and close it in pyplot."""
    # with a layout engine every drawing would move the axes a little further
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    plt.close(figure)
    return figure


def on_figure(plot: so.Plot, look: Mapping[str, Look], width: float, height: float) -> Figure:
    """Draw a plot on a new figure of so many inches; ``color``, ``marker`` and ``pointsize`` are arms, which have their look."""
    figure = plt.figure(figsize=(width, height))
    colours, markers = ({arm: each[k] for arm, each in look.items()} for k in (0, 1))
    sizes = {arm: 10 if marker == "*" or isinstance(marker, tuple) else 7 for arm, marker in markers.items()}  # a star fills less
    scales = {"color": so.Nominal(colours), "marker": so.Nominal(markers), "pointsize": so.Nominal(sizes)}
    plot.scale(**scales).theme(HOUSE).on(figure).plot()
    return figure


def forest(
    rows: pd.DataFrame, look: Mapping[str, Look], width: float = 2.4, wrap: int | None = None, share: bool = True, theirs: str = ""
) -> Figure:
    """Draw a panel for each ``panel`` and in it a line for each ``line``: points at ``value`` with their 95 % intervals, and a line at 0.

    Panels of the same unit have the same limits.

    Args:
        rows: panel, unit, line, arm, value, ci_low, ci_high and, where it is published, theirs, which is drawn hollow.
        look: of each arm.
        width: of a panel, in inches.
        wrap: panels in a row.
        share: whether all panels have the same lines.
        theirs: what the legend calls published values; without it the figure has no legend.
    """
    units, panels = rows.drop_duplicates("panel").unit, rows.groupby("panel")
    letters = panels.line.agg(lambda lines: lines.str.split("\n").explode().str.len().max())
    line = 0.12 + 0.14 * (rows.line.str.count("\n").max() + 1)  # inches of its height
    n_columns = wrap or len(units)
    size = width * n_columns + _LETTER * (letters.max() if share else letters.sum()), 1.1 + line * panels.size().max()
    beside = so.Dodge(empty="drop", by=["color"])
    plot = so.Plot(rows.reset_index(drop=True), x="value", y="line", color="arm", marker="arm", pointsize="arm").facet("panel", wrap=wrap)
    plot = plot.share(x=False, y=share).add(so.Range(linewidth=2), beside, xmin="ci_low", xmax="ci_high", legend=False)
    if "theirs" in rows:
        plot = plot.add(so.Dot(fill=False, stroke=1), beside, x="theirs", legend=False)
    plot = plot.add(so.Dot(edgecolor="white"), beside, legend=False).label(x="", y="")
    figure = on_figure(plot, look, size[0], size[1] * ceil(len(units) / n_columns))
    axes = pd.Series(figure.axes, index=units)
    for unit, ax in axes.items():
        ax.axvline(0, color="black", linewidth=0.8, zorder=0)
        ax.grid(axis="x", linewidth=0.6)
        ax.set_xlabel(unit, visible=True)
    for _, same in axes.groupby(level=0):
        lows, highs = zip(*(ax.get_xlim() for ax in same), strict=True)
        for ax in same:
            ax.set_xlim(min(lows), max(highs))
    if theirs:
        legend(figure, "upper center", OURS, {theirs: ("#555555", "o")} if rows.theirs.notna().any() else {}, "")
    return figure


def legend(figure: Figure, where: str, look: Mapping[str, Look], hollow: Mapping[str, Look] | None = None, line: Any = "--") -> None:
    """Draw a legend outside of the panels, in one row above them or in a column beside them; hollow markers have lines of their own."""
    handles = [Line2D([], [], color=colour, marker=marker, label=text) for text, (colour, marker) in look.items()]
    for text, (colour, marker) in (hollow or {}).items():
        handles.append(Line2D([], [], color=colour, marker=marker, label=text, fillstyle="none", linestyle=line))
    place: Any = f"outside {where}"
    figure.legend(handles=handles, loc=place, ncols=len(handles) if where == "upper center" else 1)


def point(ax: Axes, x: float, y: float, style: Look, **options: Any) -> None:
    """Draw one marker in its arm's style."""
    colour, marker = style
    is_star = marker == "*" or isinstance(marker, tuple)
    ax.plot(x, y, marker=marker, color=colour, markersize=10 if is_star else 7, **options)  # a star fills less of its circle
