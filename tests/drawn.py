"""Points, intervals and lines that a figure shows."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D


def points_of(ax: Axes, hollow: bool = False) -> list[tuple[float, float]]:
    """Return the positions of the filled or the hollow markers, from the top line to the last, as x
    and y.
    """
    found = []
    for marks in ax.collections:
        if isinstance(marks, PathCollection) and not all(
            len(set(path.vertices[:, 0])) == 1 for path in marks.get_paths()
        ):  # caps of intervals
            both = zip(
                np.ma.filled(marks.get_offsets(), np.nan).tolist(),
                marks.get_facecolors(),
                strict=True,
            )
            found += [(x, y) for (x, y), colour in both if x == x and (colour[3] == 0) == hollow]
    return sorted(found, key=lambda point: point[1])


def intervals_of(ax: Axes) -> list[tuple[float, float]]:
    """Return the ends of the intervals, in the order of the rows that they were drawn from."""
    bars = [
        segment
        for lines in ax.collections
        if isinstance(lines, LineCollection)
        for segment in lines.get_segments()
    ]
    ends = [bar[:, 0] if bar[0, 1] == bar[1, 1] else bar[:, 1] for bar in bars if len(bar)]
    return [(float(low), float(high)) for low, high in ends if low == low]


def dashed(line: Line2D) -> bool:
    """Return whether a line is dashed; seaborn sets patterns, which matplotlib does not name."""
    return line._dash_pattern[1] is not None


def curves_of(figure: Figure) -> dict[tuple[str, str], list[float]]:
    """Return the values of each line, by the title of its panel and its name in the figure's
    legend.
    """
    (legend,) = figure.legends
    names = {
        (to_hex(line.get_color()), dashed(line)): line.get_label() for line in legend.get_lines()
    }
    drawn = ((ax.get_title(), line) for ax in figure.axes for line in ax.get_lines())
    found = {
        (title, names.get((to_hex(line.get_color()), dashed(line)))): list(line.get_ydata())
        for title, line in drawn
    }
    return {key: values for key, values in found.items() if key[1] is not None and values}
