"""Theorem 1's bound beside the truth."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from fedmuscle_lib.core.style import Look, housed
from fedmuscle_lib.plots.palette import STYLES
from fedmuscle_lib.report.theory import CRITICS, MUSCLE

_TRUTHS = {
    "information": ("I(anchor; others)", "-"),
    "pairwise_sum": ("sum of I(anchor; other)", "--"),
    "total_correlation": ("total correlation T", ":"),
}
_BOUNDS: dict[str, Look] = {
    CRITICS["theorem"]: ("#E69F00", "o"),
    CRITICS["full"]: ("#CC79A7", "s"),
    MUSCLE: STYLES["fedmuscle"],
}
_LABELS = {
    "B": "batch size B",
    "M": "other models M",
    "overlap": "correlation of the others with one another",
}


@housed
def bounds(rows: pd.DataFrame) -> Figure:
    """A panel for each thing that varies: what is true in black, and what M log B minus the loss
    claims for each critic in colour.

    Args:
        rows: as ``report.theory.bounds`` returns them.
    """
    panels = rows.groupby("varied", sort=False)
    figure, axes = plt.subplots(len(panels), figsize=(5.2, 2.4 * len(panels) + 1.2), squeeze=False)
    for ax, (varied, panel) in zip(axes[:, 0], panels, strict=True):
        truth = panel.drop_duplicates(varied)
        for column, (text, line) in _TRUTHS.items():
            ax.plot(truth[varied], truth[column], color="black", linestyle=line, label=text)
        for critic, (colour, marker) in _BOUNDS.items():
            own = panel[panel.critic == critic]
            ax.plot(
                own[varied],
                own.bound,
                color=colour,
                marker=marker,
                label=f"M log B − loss, {critic}",
            )
            low, high = own.information + own.ci_low, own.information + own.ci_high
            ax.fill_between(own[varied], low, high, color=colour, alpha=0.2, linewidth=0)
        ax.set(xlabel=_LABELS[varied], ylabel="nats")
        if varied != "overlap":
            ax.set_xscale("log" if varied == "B" else "linear")
            ax.set_xticks(truth[varied], truth[varied])
            ax.minorticks_off()
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
    return figure
