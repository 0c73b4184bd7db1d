"""Figure 7: the information among three models as Venn diagrams."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Circle

from fedmuscle_lib.core.style import HALO, housed

_CIRCLES = {
    "$z^1$": (0.0, 0.58, "#0072B2"),
    "$z^2$": (-0.5, -0.29, "#E69F00"),
    "$z^3$": (0.5, -0.29, "#009E73"),
}
_RADIUS = 0.85
_REGIONS = {
    "i12_given_3": (-0.46, 0.27),
    "i13_given_2": (0.46, 0.27),
    "i23_given_1": (0.0, -0.56),
    "all_three": (0.0, 0.0),
}


@housed
def figure7(rows: pd.DataFrame) -> Figure:
    """A panel a world: each region of the diagram has its information, and the title what the whole
    and the sum of pairs are.

    The circles are not to scale, since a region can be negative; one that is has an orange frame.

    Args:
        rows: as ``report.theory.venn`` returns them.
    """
    figure, axes = plt.subplots(1, len(rows), figsize=(3.1 * len(rows), 3.5), squeeze=False)
    for ax, letter, (_, row) in zip(axes[0], "abcdefgh", rows.iterrows(), strict=False):
        for name, (x, y, colour) in _CIRCLES.items():
            ax.add_patch(Circle((x, y), _RADIUS, facecolor=colour, alpha=0.25))
            ax.add_patch(Circle((x, y), _RADIUS, fill=False, edgecolor=colour))
            ax.text(1.95 * x, 1.95 * y, name, ha="center", va="center", fontsize=12)
        for region, (x, y) in _REGIONS.items():
            frame = (
                {**HALO, "linewidth": 1.2, "edgecolor": "#D55E00"} if row[region] < -1e-9 else HALO
            )
            ax.text(
                x,
                y,
                f"{row[region]:.2f}".replace("-", "−"),
                ha="center",
                va="center",
                fontsize=9,
                bbox=frame,
            )
        whole, pairs = (
            f"I(z¹; z², z³) = {row.whole:.2f}",
            f"I(z¹; z²) + I(z¹; z³) = {row.pairwise_sum:.2f}",
        )
        ax.set_title(f"({letter}) correlation of z² and z³: {row.overlap:.2f}\n{whole}\n{pairs}")
        ax.set(aspect="equal", xlim=(-1.4, 1.4), ylim=(-1.2, 1.5))
        ax.axis("off")
    figure.supxlabel("information in nats", fontsize=8)
    return figure
