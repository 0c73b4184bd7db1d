"""The look of every figure, whatever the federation: the theme, colours and markers of arms, and
figures that several systems draw.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from io import BytesIO
from itertools import cycle
from math import ceil
from pathlib import Path
from textwrap import fill
from typing import Any, Literal

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
Looks = Mapping[str, Look]  # of arms, by name

# The first ones are far from each other and from most algorithms' colours, also as protanopes and
# deuteranopes see them.
_SPARE = ("#1A1AE6", "#6699CC", "#C18B70", "#E6007A", "#8800CC", "#44AA99", "#7CB342")
_STYLE = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    # which comes with matplotlib, so that a figure is the same on all machines
    "font.sans-serif": ["DejaVu Sans"],
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
    "figure.dpi": 110,  # letters that a projector shows
    "svg.hashsalt": "fedmuscle",  # the same figure has the same bytes
}
HALO = {"facecolor": "white", "alpha": 0.7, "linewidth": 0, "pad": 0.5}
_OUTSIDE: dict[str, Any] = {"fontsize": 7, "bbox": HALO, "va": "center"}
_GREY: Look = ("#555555", "o")  # what a legend explains without the colour of an arm
_LETTER = 0.075  # inches of a label's width
_PANELS = 4  # in a row that can be read on a page
_FAR = 3.0  # interquartile ranges from the quartiles, beyond which a panel may be clipped


# the theme over matplotlib's defaults, whatever matplotlibrc a reader has
_in_house = plt.style.context(["default", HOUSE])


def looks(arms: Iterable[str], table: Looks) -> dict[str, Look]:
    """Colour and marker of each arm of a figure, "<algorithm>" or "<algorithm>, <setting>".

    What is not in the table takes a spare colour that no other arm of the figure has, one after the
    other, and the marker of its algorithm if that is there.
    """
    every = dict.fromkeys(arms)
    taken = {table[arm][0] for arm in every if arm in table}
    spare = cycle([colour for colour in _SPARE if colour not in taken])
    return {
        arm: table.get(arm) or (next(spare), table.get(arm.partition(", ")[0], ("", "8"))[1])
        for arm in every
    }


@_in_house
def save(figure: Figure, folder: Path, name: str, about: str = "") -> Path:
    """Write ``name.svg``; the same figure gives the same bytes.

    Args:
        about: the line above the figure, which says whose numbers it shows.

    Raises:
        OSError: the folder can't be written.
    """
    path, content = folder / f"{name}.svg", BytesIO()
    lines = fill(about, round(figure.get_figwidth() / _LETTER * 1.2))
    figure.text(0, 1, lines, va="bottom", fontsize=7.5, color="#555555", linespacing=1.3)
    figure.savefig(
        content, format="svg", metadata={"Date": None}, bbox_inches="tight", pad_inches=0.08
    )
    put(path, content.getvalue())
    # IPython keeps this beside the image, so that a page of the notebook can link the file
    setattr(figure, "_repr_mimebundle_", lambda **_: ({}, {"figure": name}))  # noqa: B010
    return path


def housed(draw: Callable[..., Figure]) -> Callable[..., Figure]:
    """Decorate what draws a figure: it is drawn in the house's theme and returned laid out and
    closed.
    """

    @wraps(draw)
    @_in_house
    def drawn(*args: Any, **kwargs: Any) -> Figure:
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


def on_figure(plot: so.Plot, look: Looks, width: float, height: float) -> Figure:
    """Draw a plot on a new figure of so many inches; ``color``, ``marker`` and ``pointsize`` are
    arms, which have their look.
    """
    figure = plt.figure(figsize=(width, height))
    colours, markers = ({arm: each[k] for arm, each in look.items()} for k in (0, 1))
    sizes = {
        arm: 8 if marker == "*" or isinstance(marker, tuple) else 6
        for arm, marker in markers.items()
    }  # a star fills less
    plot = plot.scale(
        color=so.Nominal(colours), marker=so.Nominal(markers), pointsize=so.Nominal(sizes)
    )
    plot.theme(HOUSE).on(figure).plot()
    return figure


def forest(
    rows: pd.DataFrame,
    look: Looks,
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
        clip: cut off outliers, by Tukey's rule, which would squeeze all others; an arrow and a
            number say where they are.
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
        low, high = min(ax.get_xlim()[0] for ax in same), max(ax.get_xlim()[1] for ax in same)
        if clip:
            own = rows[rows.unit == unit].filter(["value", "ci_low", "ci_high", "theirs"])
            first, third = own.stack().quantile([0.25, 0.75])
            low = max(low, first - _FAR * (third - first))
            high = min(high, third + _FAR * (third - first))
        for ax in same:
            ax.set_xlim(low, high)
            _tell_outside(ax, rows[rows.panel == ax.get_title()], look, rows.line.unique())
    if theirs and rows.theirs.notna().any():
        legend(figure, "upper center", {"ours": _GREY}, {theirs: _GREY})
    return figure


def _tell_outside(ax: Axes, rows: pd.DataFrame, look: Looks, lines: Sequence[str]) -> None:
    """Write the numbers of points beyond the panel's limits at its edges, with an arrow."""
    low, high = ax.get_xlim()
    for row in rows.itertuples():
        y, style = [*lines].index(row.line), {"color": look[row.arm][0], **_OUTSIDE}
        for x in (row.value, getattr(row, "theirs", 0.0)):
            if x < low:
                ax.text(low, y, f"◂ {x:+.0f}", ha="left", **style)
            if x > high:
                ax.text(high, y, f"{x:+.0f} ▸", ha="right", **style)


def legend(
    figure: Figure,
    where: str,
    look: Looks,
    hollow: Mapping[str, Look] = {},
) -> None:
    """Draw a legend outside of the panels, in rows above them or in a column beside them; hollow
    markers have no lines.
    """
    styles: Any = (look, {}), (hollow, {"fillstyle": "none", "linestyle": ""})
    handles = [
        Line2D([], [], color=colour, marker=marker, label=text, **style)
        for arms, style in styles
        for text, (colour, marker) in arms.items()
    ]
    place: Any = f"outside {where}"
    wide = sum(_LETTER * len(text) + 0.4 for text in [*look, *hollow])  # inches
    rows = ceil(wide / figure.get_figwidth())
    columns = ceil(len(handles) / rows) if where == "upper center" else 1
    figure.legend(handles=handles, loc=place, ncols=columns)
