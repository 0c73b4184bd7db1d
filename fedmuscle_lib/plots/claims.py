"""The ledger of claims."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from fedmuscle_lib.core.style import Look, forest, housed, legend

_VERDICTS: dict[str, Look] = {"reproduced": ("#009E73", "o"), "contradicted": ("#D55E00", "X"), "undecided": ("#777777", "s")}


@housed
def claims(rows: pd.DataFrame) -> Figure:
    """A line a claim that was run: the contrast that decides it, with its 95 % interval, in the colour of the verdict; a panel a unit.

    Args:
        rows: as ``report.decided`` returns them.
    """
    rows = rows[rows.verdict != "not run"]
    lines = rows.claim + "\n(" + rows["where"] + ")"
    figure = forest(rows.assign(panel="", line=lines, arm=rows.verdict, value=rows.difference), _VERDICTS, width=4.5)
    legend(figure, "upper center", _VERDICTS)
    return figure
