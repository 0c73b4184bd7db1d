"""What a figure shows: the points and intervals of an axis."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PathCollection


def points_of(ax: Axes, hollow: bool = False) -> list[tuple[float, float]]:
    """Return the positions of the filled or the hollow markers, from the top line to the last, as x and y."""
    found = []
    for marks in ax.collections:
        if isinstance(marks, PathCollection):
            both = zip(np.ma.filled(marks.get_offsets(), np.nan).tolist(), marks.get_facecolors(), strict=True)
            found += [(x, y) for (x, y), colour in both if x == x and (colour[3] == 0) == hollow]
    return sorted(found, key=lambda point: point[1])


def intervals_of(ax: Axes) -> list[tuple[float, float]]:
    """Return the ends of the intervals, in the order of the rows that they were drawn from."""
    bars = [segment for lines in ax.collections if isinstance(lines, LineCollection) for segment in lines.get_segments()]
    ends = [bar[:, 0] if bar[0, 1] == bar[1, 1] else bar[:, 1] for bar in bars if len(bar)]
    return [(float(low), float(high)) for low, high in ends if low == low]
