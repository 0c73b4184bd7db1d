"""SSE-C itself: runs with other norms of its rows, and the angles between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
from torch.nn.functional import normalize

from fedmuscle_lib.fedloge.methods import Problem
from fedmuscle_lib.fedloge.methods.fedloge import FedLoGe
from fedmuscle_lib.fedloge.report.authors import sweep
from fedmuscle_lib.fedloge.report.tables import Run
from fedmuscle_lib.fedloge.settings import Settings
from fedmuscle_lib.runs import run_all
from fedmuscle_lib.runs.settings import parse


def run_norms(common: dict[str, Any], norms: Sequence[float], seed: int) -> list[Run]:
    """Compute or fetch a run of FedLoGe for each norm nu of SSE-C's rows, on one seed; raises as ``run_methods`` does."""
    options = common.get("options", {})
    return run_all(
        [parse(Settings, {**common, "algorithm": "fedloge", "seed": seed, "options": {**options, "fedloge.norm": nu}}) for nu in norms]
    )


def norms(histories: Sequence[Run]) -> pd.DataFrame:
    """GM of each run of :func:`run_norms` over all classes, after the last round: norm, head, value, authors_mean.

    The authors' figures are of log h's setting, and which head they are of is unknown.
    """
    rows = []
    for history in histories:
        final = history.final()
        own = final[(final.scope == "global") & (final.group == "all")]
        rows.append(own.assign(norm=history.settings.options["fedloge.norm"])[["norm", "head", "value"]])
    return pd.concat(rows, ignore_index=True).merge(sweep(), on="norm", how="left")


def cosines(history: Run) -> pd.DataFrame:
    """Cosines between the rows of the run's SSE-C, as its entries were set to 0 and after its fit: fitted, class_a, class_b, cosine.

    Classes are numbered from 0; of two, the first is the lower one.
    """
    s, classes = history.settings, len(history.provenance["samples"])
    rows = []
    for fitted, own in ((False, {"etf_steps": 0}), (True, {})):
        weight = FedLoGe(Problem(s.network, classes, s.seed), s.own_options | own).sse_c.weight
        unit = normalize(weight.double(), dim=1)
        cosine = (unit @ unit.T).tolist()
        rows += [
            {"fitted": fitted, "class_a": a, "class_b": b, "cosine": cosine[a][b]} for a in range(classes) for b in range(a + 1, classes)
        ]
    return pd.DataFrame(rows)
