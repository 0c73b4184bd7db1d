"""Each user's metric over communication rounds, also while its run goes on."""

from __future__ import annotations

from math import ceil

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedmuscle_lib.core.style import HOUSE, closed
from fedmuscle_lib.plots.palette import styles
from fedmuscle_lib.report import label

_COLUMNS = 3  # of panels


def user_curves(curves: pd.DataFrame, rounds: int) -> Figure:
    """Draw a panel a user and in it a line an algorithm: the present run's solid, another stored run's dashed and hollow.

    Args:
        curves: algorithm, stored (whether it is the other run's), user, model, task, metric, round, value.
        rounds: of the present run, at which a dotted line stands where another run goes on.
    """
    users = curves.drop_duplicates("user").sort_values("user")
    look, n_rows = styles(curves.algorithm), ceil(len(users) / _COLUMNS)
    with plt.rc_context(HOUSE):
        figure, grid = plt.subplots(n_rows, _COLUMNS, figsize=(9, 0.4 + 2.2 * n_rows), squeeze=False)
        for ax in grid.flat[len(users) :]:
            ax.set_visible(False)
        for ax, user in zip(grid.flat, users.itertuples(), strict=False):
            for (name, stored), rows in curves[curves.user == user.user].groupby(["algorithm", "stored"], sort=False):
                colour, marker = look[name]
                other = {"linestyle": "--", "markerfacecolor": "white", "alpha": 0.7} if stored else {}
                text = label(name) + (", stored run" if stored else "")
                ax.plot(rows["round"], rows.value, color=colour, marker=marker, markersize=4, label=text, **other)
            if curves["round"].max() > rounds:
                ax.axvline(rounds, color="black", linewidth=0.6, linestyle=":")
            ax.set(title=f"user {user.user}: {user.model}, {user.task}", ylabel=user.metric)
            ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        for ax in grid[-1]:
            ax.set_xlabel("communication round")
        lines = {line.get_label(): line for ax in grid.flat for line in ax.get_lines() if not line.get_label().startswith("_")}
        figure.legend(handles=list(lines.values()), loc="outside upper center", ncols=len(lines))
    return closed(figure)
