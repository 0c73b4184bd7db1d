"""The controls: what each arm adds to local training, user by user, and Delta taken to pieces."""

from __future__ import annotations

from math import ceil

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from fedmuscle_lib.core.style import HOUSE, closed, strip
from fedmuscle_lib.plots.palette import styles
from fedmuscle_lib.report import label

_QUESTIONS = {
    "gain": ("what FedMuscle gains", "Δ (%)"),
    "peers": ("beside arms without live, matched peers", "points of Δ"),
    "destroyed": ("what local training destroys", "Δ over local training (%)"),
}
_PANELS = 8  # of users in a row that can be read


def controls(differences: pd.DataFrame, delta: pd.DataFrame) -> Figure:
    """One panel a user, metric relative to local training in points, and one for Delta; an arm a line, with its 95 % interval.

    Args:
        differences: rows as ``report.over_baseline`` returns them.
        delta: rows as ``report.delta`` returns them.
    """
    look = styles(differences.algorithm)
    arms = list(look)
    users = differences.drop_duplicates("user")
    n_rows = ceil((len(users) + 1) / _PANELS)
    n_columns = ceil((len(users) + 1) / n_rows)
    with plt.rc_context(HOUSE):
        size = (1.55 * (n_columns + 1), n_rows * (1.1 + 0.36 * len(arms)))
        figure, axes = plt.subplots(n_rows, n_columns, figsize=size, sharey=True, squeeze=False)
        axes[0, 0].set_yticks(range(len(arms)), [label(arm) for arm in arms])
        axes[0, 0].set_ylim(len(arms) - 0.5, -0.5)
        *panels, last = axes.flat[: len(users) + 1]
        for ax, user in zip(panels, users.itertuples(), strict=True):
            rows = differences[differences.user == user.user].rename(columns={"difference": "value"})
            strip(ax, rows, look)
            ax.set_title(f"user {user.user}\n{user.model}\n{user.task}, {user.metric}")
            ax.set_xlabel("points over local")
            ax.sharex(panels[0])
        strip(last, delta[delta.algorithm.isin(arms)].rename(columns={"delta": "value"}), look)
        last.set_title("all users")
        last.set_xlabel("Δ (%)")
        last.set_facecolor("#f4f4f4")
        for ax in axes.flat[len(users) + 1 :]:
            ax.set_axis_off()
    return closed(figure)


def in_short(rows: pd.DataFrame) -> Figure:
    """One panel a question: what FedMuscle gains over both baselines, how much of it peers give, what local training destroys.

    Args:
        rows: as ``report.in_short`` returns them, for one public set.
    """
    rows = rows.rename(columns={"difference": "value"})
    # a line is coloured by what its question varies: the arm, or what FedMuscle is compared with
    rows["algorithm"] = rows.over.where(rows.question == "peers", rows.arm)
    questions = [name for name in _QUESTIONS if name in set(rows.question)]
    with plt.rc_context(HOUSE):
        size = (3.6 * len(questions), 1.1 + 0.42 * rows.question.value_counts().max())  # labels have two lines
        figure, axes = plt.subplots(1, len(questions), figsize=size, squeeze=False)
        for ax, question in zip(axes[0], questions, strict=True):
            own = rows[rows.question == question].reset_index(drop=True)
            strip(ax, own.assign(line=own.index), styles(own.algorithm))
            ax.set_yticks(range(len(own)), [_line(question, row.arm, row.over) for row in own.itertuples()])
            ax.set_ylim(len(own) - 0.5, -0.5)
            title, unit = _QUESTIONS[question]
            ax.set_title(title)
            ax.set_xlabel(unit)
    return closed(figure)


def _line(question: str, arm: str, over: str) -> str:
    if question == "destroyed":
        return label(arm)
    return f"{label(arm)}\n{'−' if question == 'peers' else 'over'} {label(over)}"
