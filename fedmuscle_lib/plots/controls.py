"""The controls: what each arm adds to local training, user by user."""

from __future__ import annotations

from math import ceil

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from fedmuscle_lib.plots.style import HOUSE, closed, strip
from fedmuscle_lib.report import label

_PANELS = 8  # of users in a row that can be read


def controls(differences: pd.DataFrame, delta: pd.DataFrame) -> Figure:
    """One panel a user, metric relative to local training in points, and one for Delta; an arm a line, with its 95 % interval.

    Args:
        differences: rows as ``report.over_baseline`` returns them.
        delta: rows as ``report.delta`` returns them.
    """
    arms = list(dict.fromkeys(differences.algorithm))
    users = differences.drop_duplicates("user")
    n_rows = ceil((len(users) + 1) / _PANELS)
    n_columns = ceil((len(users) + 1) / n_rows)
    with plt.rc_context(HOUSE):
        size = (1.55 * (n_columns + 1), n_rows * (0.95 + 0.36 * len(arms)))
        figure, axes = plt.subplots(n_rows, n_columns, figsize=size, sharey=True, squeeze=False)
        axes[0, 0].set_yticks(range(len(arms)), [label(arm) for arm in arms])
        axes[0, 0].set_ylim(len(arms) - 0.5, -0.5)
        *panels, last = axes.flat[: len(users) + 1]
        for ax, user in zip(panels, users.itertuples(), strict=True):
            rows = differences[differences.user == user.user].rename(columns={"difference": "value"})
            strip(ax, rows, arms)
            ax.set_title(f"user {user.user}: {user.model}\n{user.task}, {user.metric}")
            ax.set_xlabel("points over local")
            ax.sharex(panels[0])
        strip(last, delta[delta.algorithm.isin(arms)].rename(columns={"delta": "value"}), arms)
        last.set_title("all users")
        last.set_xlabel("Δ (%)")
        last.set_facecolor("#f4f4f4")
        for ax in axes.flat[len(users) + 1 :]:
            ax.set_axis_off()
    return closed(figure)
