"""Delta and the alignment loss over communication rounds."""

from __future__ import annotations

import pandas as pd
import seaborn.objects as so
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, ScalarFormatter

from fedmuscle_lib.core.style import GREY, Look, forest, housed, legend, on_figure
from fedmuscle_lib.data.public import NAMES
from fedmuscle_lib.fedmuscle.arms import TUNED
from fedmuscle_lib.plots.palette import styles
from fedmuscle_lib.report import BASELINE, label
from fedmuscle_lib.runs.history import setting_of

_CURVE = 4  # evaluations that make one


@housed
def training_curve(curve: pd.DataFrame) -> Figure:
    """Delta over communication rounds, one panel a public set: a line an algorithm with its 95 %
    band or, of few evaluations, a dumbbell.

    The axis is linear up to 10 % and logarithmic beyond, since in the first rounds local training
    has learnt little. Arms with a tuned recipe are left out, as they train for other numbers of
    epochs in a round, and so is the probe, which has no rounds.

    Args:
        curve: rows as ``report.curve`` returns them.
    """
    curve = curve[
        ~curve.algorithm.isin([BASELINE, "probe"]) & (curve.algorithm.map(setting_of) != TUNED)
    ].replace({"public": NAMES})
    curve = curve.dropna(subset="delta")
    look = styles(curve.algorithm)
    if curve["round"].nunique() < _CURVE:
        return _dumbbells(curve, look)
    plot = so.Plot(curve, x="round", y="delta", color="algorithm", marker="algorithm").facet(
        "public"
    )
    plot = _with_bands(plot, pointsize=4).label(y="Δ over local training (%)")
    figure = on_figure(plot, look, 2.2 * curve.public.nunique() + 2.5, 3)
    for ax in figure.axes:
        ax.axhline(0, color="black", linewidth=0.8)
    figure.axes[0].set_yscale("symlog", linthresh=10)  # of all panels, which share it
    figure.axes[0].yaxis.set_major_formatter(ScalarFormatter())
    legend(figure, "right center", {label(name): each for name, each in look.items()})
    return figure


def _dumbbells(curve: pd.DataFrame, look: dict[str, Look]) -> Figure:
    """A line an algorithm, from its earlier evaluations, which are hollow, to the last."""
    rounds = sorted(curve["round"].unique())
    rows = curve.assign(
        panel=curve.public,
        line=curve.algorithm.map(label),
        arm=curve.algorithm,
        unit="Δ over local training (%)",
    )
    early = rows["round"] < rounds[-1]
    rows = rows.assign(value=rows.delta.mask(early), theirs=rows.delta.where(early))
    rows[["ci_low", "ci_high"]] = rows[["ci_low", "ci_high"]].mask(early)
    figure = forest(rows, look, share=False)
    for ax in figure.axes:
        for y, (_, own) in enumerate(
            rows[rows.panel == ax.get_title()].groupby("line", sort=False)
        ):
            ax.plot(
                own.delta,
                [y] * len(own),
                color=look[own.arm.iloc[0]][0],
                linewidth=0.8,
                linestyle=":",
                zorder=0.5,
            )
    before = f"after round{'s' * (len(rounds) > 2)} {' and '.join(map(str, rounds[:-1]))}"
    legend(
        figure,
        "upper center",
        {f"after round {rounds[-1]}": GREY},
        {before: GREY} if rounds[:-1] else {},
        "",
    )
    return figure


@housed
def loss_and_delta(losses: pd.DataFrame, curve: pd.DataFrame) -> Figure:
    """FedMuscle's loss over communication rounds, and below it Delta of every arm, each with its 95
    % band.

    Args:
        losses: rows as ``report.loss_curve`` returns them.
        curve: rows as ``report.curve`` returns them, of the same public set.
    """
    losses = (
        losses[losses.algorithm == "fedmuscle"]
        .rename(columns={"loss": "value"})
        .assign(panel="Muscle loss, mean over users")
    )
    deltas = (
        curve[~curve.algorithm.isin([BASELINE, "probe"])]
        .rename(columns={"delta": "value"})
        .assign(panel="Δ over local training (%)")
    )
    rows = pd.concat([losses, deltas], ignore_index=True)
    look = styles(deltas.algorithm)
    plot = (
        so.Plot(rows, x="round", y="value", color="algorithm", marker="algorithm")
        .facet("panel", wrap=1)
        .share(y=False)
    )
    figure = on_figure(_with_bands(plot, pointsize=3).label(y=""), look, 5, 5.2)
    figure.axes[1].axhline(0, color="black", linewidth=0.8)
    legend(figure, "upper center", {label(name): each for name, each in look.items()})
    return figure


def _with_bands(plot: so.Plot, pointsize: float) -> so.Plot:
    """Lines over communication rounds, with their 95 % bands."""
    plot = plot.add(so.Band(alpha=0.15), ymin="ci_low", ymax="ci_high", legend=False).add(
        so.Line(pointsize=pointsize), legend=False
    )
    return plot.scale(x=so.Continuous().tick(MaxNLocator(integer=True))).label(
        x="communication round"
    )
