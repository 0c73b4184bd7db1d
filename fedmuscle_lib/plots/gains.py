"""Gains of arms over local training: user by user, and Delta taken to pieces."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
from matplotlib.figure import Figure

from fedmuscle_lib.core.style import forest, housed
from fedmuscle_lib.plots.palette import styles
from fedmuscle_lib.report import label

_QUESTIONS = {  # its panel, the unit, and what stands between an arm and what it is compared with
    "gain": ("what FedMuscle gains", "Δ (%)", "over"),
    "peers": ("beside arms without live, matched peers", "points of Δ", "−"),
    "destroyed": ("what local training destroys", "Δ over local training (%)", ""),
}


@housed
def controls(
    differences: pd.DataFrame, delta: pd.DataFrame, models: Mapping[str, str] | None = None
) -> Figure:
    """One panel a user, metric relative to local training in points, and one for Delta; an arm a
    line, with its 95 % interval.

    The paper's Delta is hollow. An arm that would squeeze the others is cut off, with an arrow and
    its number.

    Args:
        differences: rows as ``report.over_baseline`` returns them.
        delta: rows as ``report.delta`` returns them.
        models: as ``report.models`` returns them.
    """
    called = {model: name.replace(", ", "\n") for model, name in (models or {}).items()}
    titles = [
        f"user {row.user}\n{called.get(row.model, row.model)}\n{row.task}, {row.metric}"
        for row in differences.itertuples()
    ]
    users = differences.assign(panel=titles, unit="points over local", value=differences.difference)
    every = delta[delta.algorithm.isin(set(users.algorithm))].assign(
        panel="all users", unit="Δ over local (%)", value=delta.delta, theirs=delta.paper_delta
    )
    rows = pd.concat([users, every], ignore_index=True)
    rows = rows.assign(arm=rows.algorithm, line=rows.algorithm.map(label))
    figure = forest(rows, styles(rows.arm), theirs="the paper's FedMuscle", clip=True)
    figure.axes[-1].set_facecolor("#f4f4f4")
    return figure


@housed
def in_short(rows: pd.DataFrame) -> Figure:
    """One panel a question: what FedMuscle gains over both baselines, how much of it peers give,
    what local training destroys.

    Args:
        rows: as ``report.in_short`` returns them, for one public set.
    """
    rows = rows.sort_values(
        "question", key=lambda names: names.map(list(_QUESTIONS).index), kind="stable"
    )
    panels, units, between = zip(*rows.question.map(_QUESTIONS), strict=True)
    lines = [
        label(row.arm) + (sign and f" {sign} {label(row.over)}")
        for row, sign in zip(rows.itertuples(), between, strict=True)
    ]
    # a line is coloured by what its question varies: the arm, or what FedMuscle is compared with
    arms = rows.over.where(rows.question == "peers", rows.arm)
    return forest(
        rows.assign(panel=panels, unit=units, line=lines, value=rows.difference, arm=arms),
        styles(arms),
        share=False,
    )
