"""FedMuscle in every world that has a reference of ``controls``, from the committed CSV files: ``figures/worlds.svg``."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from fedmuscle_lib.core.files import ROOT
from fedmuscle_lib.core.style import forest, housed, save
from fedmuscle_lib.plots.palette import styles
from fedmuscle_lib.report import TUNED_BASELINE, in_short_of_worlds, label

_OVER = {"local": "Δ (%)", TUNED_BASELINE: "Δ (%)", "self": "points of Δ", "head_only": "points of Δ"}


@housed
def worlds(rows: pd.DataFrame) -> Figure:
    """FedMuscle in every world, a line each: Delta over both baselines, and the difference from arms that take nothing from peers.

    Args:
        rows: as ``report.in_short_of_worlds`` returns them.
    """
    rows = rows[(rows.arm == "fedmuscle") & rows.over.isin(_OVER)].rename(columns={"difference": "value", "world": "line"})
    titles = [f"FedMuscle over\n{label(over)}" for over in rows.over]
    return forest(rows.assign(panel=titles, unit=rows.over.map(_OVER), arm=rows.over), styles(rows.over))


if __name__ == "__main__":
    save(worlds(in_short_of_worlds()), ROOT / "figures", "worlds")
