"""Figure 9: a synthetic image of each user, below the private image that it was made from."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from fedmuscle_lib.core.style import housed


@housed
def figure9(samples: pd.DataFrame) -> Figure:
    """A column a user: its private image above, the synthetic one below.

    Args:
        samples: rows as ``fedmuscle.synthetic.samples`` returns them.
    """
    kinds = ("private", "synthetic")
    figure, axes = plt.subplots(
        len(kinds), len(samples), figsize=(1.3 * len(samples) + 0.4, 3.1), squeeze=False
    )
    for kind, line in zip(kinds, axes, strict=True):
        for ax, image in zip(line, samples[kind], strict=True):
            ax.imshow(image, interpolation="nearest")
            ax.set(xticks=[], yticks=[])
        line[0].set_ylabel(kind)
    for ax, row in zip(axes[0], samples.itertuples(), strict=True):
        ax.set_title(f"user {row.user}\n{row.task}")
    return figure
