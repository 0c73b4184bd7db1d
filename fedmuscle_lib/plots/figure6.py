"""Figure 6: the toy example, whose terms are arrows in the plane."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedmuscle_lib.core.style import HALO, housed


@housed
def figure6(
    anchor: np.ndarray, vectors: np.ndarray, weights: dict[str, np.ndarray], images: Sequence[str]
) -> Figure:
    """Figure 6: the sums of the other models' vectors, as arrows in the plane whose width is their
    term's share of the loss's sum.

    Args:
        anchor: (2,), the anchor's unit vector, which is ``images[0]``'s.
        vectors: (2, b, 2), the unit vectors of models 2 and 3, a row an image.
        weights: title of a panel -> (b, b) shares of the tuples (j_2, j_3), which sum to 1.
        images: b names.
    """
    figure, axes = plt.subplots(
        1, len(weights), figsize=(4.4 * len(weights), 4.6), sharex=True, sharey=True
    )
    for ax, (title, share) in zip(np.atleast_1d(axes), weights.items(), strict=True):
        for j2, j3 in np.ndindex(share.shape):
            end = vectors[0, j2] + vectors[1, j3]
            _arrow(
                ax,
                end,
                "#0072B2" if j2 == j3 == 0 else "#D55E00",
                width=0.5 + 30 * float(share[j2, j3]),
            )
            _at_tip(ax, end, f"{images[j2]}+{images[j3]} {share[j2, j3]:.0%}")
        _arrow(ax, anchor, "black", width=1.5)
        ax.annotate(
            "anchor", anchor / 2, xytext=(-5, 0), textcoords="offset points", fontsize=8, ha="right"
        )
        ax.set(title=title, aspect="equal", xticks=[], yticks=[])
        ax.margins(0.16)
        ax.spines[:].set_visible(False)
    return figure


def _arrow(ax: Axes, end: np.ndarray, colour: str, width: float) -> None:
    head = {"width": width, "headwidth": 5 + 1.5 * width, "headlength": 5 + width}
    ax.annotate(
        "",
        (end[0], end[1]),
        xytext=(0, 0),
        arrowprops={**head, "color": colour, "alpha": 0.7, "linewidth": 0, "shrink": 0},
    )
    ax.plot([0, end[0]], [0, end[1]], alpha=0)  # annotations don't extend the axes' limits


def _at_tip(ax: Axes, end: np.ndarray, text: str) -> None:
    x, y = end / np.linalg.norm(end)
    ha, va = ("right", "center", "left")[1 + round(x)], ("top", "center", "bottom")[1 + round(y)]
    ax.annotate(
        text,
        (end[0], end[1]),
        xytext=(4 * x, 4 * y),
        textcoords="offset points",
        ha=ha,
        va=va,
        fontsize=8,
        bbox=HALO,
    )
