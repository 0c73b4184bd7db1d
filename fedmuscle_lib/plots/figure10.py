"""Who has how many training samples of which class."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from fedmuscle_lib.core.style import housed


@housed
def figure10(counts: pd.DataFrame) -> Figure:
    """Draw a panel a task: a row a user, a column a class, coloured by training samples; classes of
    one user stand together.

    Args:
        counts: rows as ``report.class_counts`` returns them.
    """
    tasks = counts.groupby("task", sort=False)
    figure, axes = plt.subplots(len(tasks), figsize=(7.5, 1.3 * len(tasks) + 0.3), squeeze=False)
    for ax, (task, rows) in zip(axes[:, 0], tasks, strict=True):
        grid = rows.pivot(index="user", columns="class", values="samples").fillna(0)
        grid = grid[grid.idxmax().sort_values(kind="stable").index]
        sns.heatmap(
            grid,
            mask=grid == 0,
            cmap="viridis",
            xticklabels=False,
            cbar_kws={"label": "samples"},
            ax=ax,
        )
        ax.set(title=task, xlabel=f"{grid.shape[1]} classes, by who has most of them")
        ax.tick_params(axis="y", rotation=0)
    return figure
