"""Arms of FedLoGe's tables: settings in, histories out, and the fixed classifier of a run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
import torch

from fedmuscle_lib.fedloge.etf import cosines
from fedmuscle_lib.fedloge.methods import Problem
from fedmuscle_lib.fedloge.methods.fedloge import FedLoGe
from fedmuscle_lib.fedloge.settings import Settings
from fedmuscle_lib.runs import History, available, run_all
from fedmuscle_lib.runs.history import setting_of
from fedmuscle_lib.runs.settings import parse

Run = History[Settings]

_NUMBER = re.compile(r"[+-]?\d*\.?\d+(e[+-]?\d+)?")


def run_methods(common: dict[str, Any], arms: Iterable[str], seeds: Sequence[int]) -> list[Run]:
    """Compute or fetch a run of each arm for each seed; seed after seed, so that a whole table of
    the first one comes first.

    Where nothing may be computed, runs of all arms but the first that are not stored are left out,
    with a warning.

    Args:
        common: settings of all runs.
        arms: "<algorithm>", or "<algorithm>, <option> <value>" with an option of its own at another
            value, such as "fedloge, norm 1". One that asks for the same as an earlier one is left
            out: the profile has this value.

    Raises:
        ValueError: settings that no run can have.
        NotStored, and what else ``run_all`` raises.
    """
    asked: dict[str, str] = {}
    for arm in arms:
        own = _settings(common, arm, 0)
        asked.setdefault(
            own.algorithm + own.method.Options(**own.own_options).model_dump_json(), arm
        )
    names = list(asked.values())
    wanted = [(arm, _settings(common, arm, seed)) for seed in seeds for arm in names]
    beside = available(
        {f"{arm} on seed {own.seed}": [own] for arm, own in wanted if arm != names[0]}
    )
    wanted = [
        (arm, own)
        for arm, own in wanted
        if arm == names[0] or f"{arm} on seed {own.seed}" in beside
    ]
    finished = run_all([own for _, own in wanted])
    return [
        replace(run, setting=setting_of(arm))
        for run, (arm, _) in zip(finished, wanted, strict=True)
    ]


def _settings(common: dict[str, Any], arm: str, seed: int) -> Settings:
    algorithm, _, setting = arm.partition(", ")
    option, _, value = setting.partition(" ")
    own = (
        {f"{algorithm}.{option}": float(value) if _NUMBER.fullmatch(value) else value}
        if setting
        else {}
    )
    return parse(
        Settings,
        {
            **common,
            "algorithm": algorithm,
            "seed": seed,
            "options": {**common.get("options", {}), **own},
        },
    )


def sse_c_cosines(run: Run) -> pd.DataFrame:
    """Fit the run's SSE-C again and return the cosines between its rows, after its entries were set
    to 0 and after the fit.

    Returns:
        fitted, class_a, class_b (from 0; a is the lower one), cosine.
    """
    s, classes = run.settings, len(run.provenance["samples"])
    a, b = torch.triu_indices(classes, classes, offset=1).tolist()
    frames = []
    for fitted, own in ((False, {"etf_steps": 0}), (True, {})):
        weight = FedLoGe(Problem(s.network, classes, s.seed), s.own_options | own).sse_c.weight
        frames.append(
            pd.DataFrame(
                {"fitted": fitted, "class_a": a, "class_b": b, "cosine": cosines(weight).tolist()}
            )
        )
    return pd.concat(frames, ignore_index=True)
