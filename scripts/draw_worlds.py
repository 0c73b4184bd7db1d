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

    The paper's FedMuscle is a vertical line. A bracket names the worlds in which a frozen backbone
    is above local training.

    Args:
        rows: as ``report.results.delta_of_worlds`` returns them, those worlds last.
    """
    ours = pd.concat([rows[rows.algorithm == arm] for arm in RIVALS], ignore_index=True)
    look = styles(ours.algorithm)
    lines = ours.rename(columns={"algorithm": "arm", "delta": "value"}).assign(
        line=ours.world.str.replace(", ", ",\n", n=1)
    )
    figure = forest(lines.assign(panel="", unit="Δ over local training (%)"), look)
    (ax,), (blue, *_) = figure.axes, look["fedmuscle"]
    (printed,) = rows.paper_delta[rows.algorithm == "fedmuscle"].dropna().unique()
    ax.axvline(printed, color=blue, linestyle="--", zorder=0)
    ax.annotate(
        f"the paper, +{printed:.1f}",
        (printed, 1),
        xycoords=ax.get_xaxis_transform(),
        xytext=(3, 3),
        textcoords="offset points",
        color=blue,
    )
    frozen = rows[rows.algorithm == "head_only"]
    first, last = len(frozen) - (frozen.ci_low > 0).sum() - 0.4, len(frozen) - 0.6
    side = ax.get_yaxis_transform()
    ends = ([1.03, 1.05, 1.05, 1.03], [first, first, last, last])
    ax.plot(*ends, color="black", linewidth=1, transform=side, clip_on=False)
    ax.text(
        1.07,
        (first + last) / 2,
        "local training spoils features",
        rotation=270,
        va="center",
        transform=side,
    )
    legend(figure, "upper center", {label(arm): look[arm] for arm in dict.fromkeys(ours.algorithm)})
    return figure


if __name__ == "__main__":
    save(worlds(delta_of_worlds()), ROOT / "figures", "worlds", ABOUT)
