"""Arms of FedLoGe's tables: settings in, histories out, and the fixed classifier of a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd
import torch

from fedmuscle_lib.fedloge.etf import cosines
from fedmuscle_lib.fedloge.methods import Problem
from fedmuscle_lib.fedloge.methods.fedloge import FedLoGe
from fedmuscle_lib.fedloge.settings import Settings
from fedmuscle_lib.runs import History, run_all
from fedmuscle_lib.runs.settings import parse

Run = History[Settings]


def run_methods(common: dict[str, Any], algorithms: Iterable[str], seeds: Sequence[int]) -> list[Run]:
    """Compute or fetch a run of each algorithm for each seed; seed after seed, so that a whole table of the first one comes first.

    Args:
        common: settings of all runs.

    Raises:
        ValueError: settings that no run can have.
        NotStored, and what else ``run_all`` raises.
    """
    names = list(dict.fromkeys(algorithms))
    return run_all([parse(Settings, {**common, "algorithm": name, "seed": seed}) for seed in seeds for name in names])


def run_norms(common: dict[str, Any], norms: Sequence[float], seed: int) -> list[Run]:
    """Compute or fetch a run of FedLoGe for each norm nu of SSE-C's rows, on one seed; raises as :func:`run_methods` does."""
    options = [{**common.get("options", {}), "fedloge.norm": nu} for nu in norms]
    return run_all([parse(Settings, {**common, "algorithm": "fedloge", "seed": seed, "options": own}) for own in options])


def sse_c_cosines(run: Run) -> pd.DataFrame:
    """Fit the run's SSE-C again and return the cosines between its rows, after its entries were set to 0 and after the fit.

    Returns:
        fitted, class_a, class_b (from 0; a is the lower one), cosine.
    """
    s, classes = run.settings, len(run.provenance["samples"])
    a, b = torch.triu_indices(classes, classes, offset=1).tolist()
    frames = []
    for fitted, own in ((False, {"etf_steps": 0}), (True, {})):
        weight = FedLoGe(Problem(s.network, classes, s.seed), s.own_options | own).sse_c.weight
        frames.append(pd.DataFrame({"fitted": fitted, "class_a": a, "class_b": b, "cosine": cosines(weight).tolist()}))
    return pd.concat(frames, ignore_index=True)
