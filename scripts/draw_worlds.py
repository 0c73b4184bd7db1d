"""Draw ``figures/worlds.svg``: FedMuscle and its controls in every world that has a reference of
``controls``, from the committed CSV files; ``make reference`` does this.
"""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from fedmuscle_lib.core.files import ROOT
from fedmuscle_lib.core.style import forest, housed, legend, save
from fedmuscle_lib.plots.palette import styles
from fedmuscle_lib.report import label
from fedmuscle_lib.report.results import RIVALS, delta_of_worlds

ABOUT = (
    "Six users (Setup1); the public set is Pascal VOC, or what stands for it in a generated world;"
    " 95 % intervals over 3 to 10 seeds."
)


@housed
def worlds(rows: pd.DataFrame) -> Figure:
    """Delta over local training in every world, a line each: FedMuscle, the own copy, a frozen
    backbone, tuned local training.

    The first line is the paper's: it has FedMuscle alone.

    Args:
        rows: as ``report.results.delta_of_worlds`` returns them.
    """
    paper = rows[rows.algorithm == "fedmuscle"].dropna(subset="paper_delta").head(1)
    paper = paper[["algorithm"]].assign(world="the paper", theirs=paper.paper_delta)
    ours = pd.concat([rows[rows.algorithm == arm] for arm in RIVALS])
    together = pd.concat([paper, ours], ignore_index=True)
    look = styles(together.algorithm)
    lines = together.rename(columns={"algorithm": "arm", "delta": "value"}).assign(
        line=together.world.str.replace(", ", ",\n", n=1)
    )
    figure = forest(lines.assign(panel="", unit="Δ over local training (%)"), look)
    legend(figure, "upper center", {label(arm): look[arm] for arm in dict.fromkeys(ours.algorithm)})
    return figure


if __name__ == "__main__":
    save(worlds(delta_of_worlds()), ROOT / "figures", "worlds", ABOUT)
