"""FedMuscle in every world that has a reference of ``controls``, from the committed CSV files: ``figures/worlds.svg``."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from fedmuscle_lib.core.files import ROOT
from fedmuscle_lib.core.style import HOUSE, closed, save, strip
from fedmuscle_lib.plots.palette import styles
from fedmuscle_lib.report import TUNED_BASELINE, in_short_of_worlds, label

_OVER = {"local": "Δ (%)", TUNED_BASELINE: "Δ (%)", "self": "points of Δ", "head_only": "points of Δ"}


def worlds(rows: pd.DataFrame) -> Figure:
    """FedMuscle in every world, a line each: Delta over both baselines, and the difference from arms that take nothing from peers.

    Args:
        rows: as ``report.in_short_of_worlds`` returns them.
    """
    rows = rows[(rows.arm == "fedmuscle") & rows.over.isin(_OVER)].rename(columns={"difference": "value"})
    names, shown = list(dict.fromkeys(rows.world)), [over for over in _OVER if over in set(rows.over)]
    rows = rows.assign(algorithm=rows.over, line=rows.world.map(names.index))
    with plt.rc_context(HOUSE):
        figure, axes = plt.subplots(1, len(shown), figsize=(1.2 + 2.4 * len(shown), 1.1 + 0.3 * len(names)), sharey=True, squeeze=False)
        axes[0, 0].set_yticks(range(len(names)), names)
        axes[0, 0].set_ylim(len(names) - 0.5, -0.5)
        for ax, over in zip(axes[0], shown, strict=True):
            strip(ax, rows[rows.over == over], styles([over]))
            ax.set_title(f"FedMuscle over\n{label(over)}")
            ax.set_xlabel(_OVER[over])
    return closed(figure)


if __name__ == "__main__":
    save(worlds(in_short_of_worlds()), ROOT / "figures", "worlds")
