"""Figure 2: Delta per public set."""

from __future__ import annotations

import pandas as pd
import seaborn.objects as so
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from fedmuscle_lib.core.style import housed, on_figure
from fedmuscle_lib.data.public import NAMES
from fedmuscle_lib.plots.palette import styles
from fedmuscle_lib.report import label

_OBJECTIVES = ("fedmuscle", "gramian", "pairwise")  # the bars, from left to right


@housed
def figure2(delta: pd.DataFrame) -> Figure:
    """Figure 2: Delta of each objective for each public set, ours solid with 95 % intervals, the
    paper's hollow beside it.

    Args:
        delta: rows as ``report.delta`` returns them.
    """
    look = styles(_OBJECTIVES)
    ours = delta[delta.algorithm.isin(look)].replace({"public": NAMES})
    papers = (
        ours[["public", "algorithm", "paper_delta"]]
        .rename(columns={"paper_delta": "delta"})
        .dropna()
    )
    rows = pd.concat([ours.assign(ours=True), papers.assign(ours=False)], ignore_index=True)
    beside = so.Dodge(by=["color", "fill"])
    plot = so.Plot(rows, x="public", y="delta", color="algorithm", fill="ours")
    plot = plot.scale(fill=so.Nominal([True, False], order=[True, False])).add(
        so.Bar(alpha=1), beside, legend=False
    )
    plot = plot.add(so.Range(color="black"), beside, ymin="ci_low", ymax="ci_high", legend=False)
    figure = on_figure(plot.label(x="", y="Δ over local training (%)"), look, 6.8, 3.4)
    figure.axes[0].axhline(0, color="black", linewidth=0.8)
    handles = [Patch(color=colour, label=label(name)) for name, (colour, _) in look.items()]
    handles += [
        Patch(color="#555555", label="ours"),
        Patch(facecolor="white", edgecolor="#555555", label="the paper's"),
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles))
    return figure
