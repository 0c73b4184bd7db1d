"""The authors' logs: every figure of them, and those that stand beside a table of ours.

``authors_logs.csv`` has a row a figure of the folder ``log`` of
https://github.com/ZackZikaiXiao/FedLoGe at f4cac52, in per cent. Logs "a" to "h" are eight
settings, "sse_c" is the README's command, and "norm" is log h's setting for other norms nu of
SSE-C's rows. GM is the global model on the balanced test set, PM the mean of the clients' own
models on their local tests. ``last`` is the last logged round, ``best`` the best one, which the
authors choose on the test set. The logs name no head: ``head_assumed`` is what the code of their
day evaluated. "fedavg_tmp" is a second FedAvg of theirs, which starts from a trained model; no
method of ours is like it.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pandas as pd

from fedmuscle_lib.fedloge.settings import Settings

CELL = ["algorithm", "scope", "head", "masked", "group"]
SWEEP = "norm"
SCOPES = {"GM": "global", "PM": "personal"}
# Ours by their data. The embedded world's digits are no photographs; they have ten classes as well,
# and stand beside CIFAR-10.
DATA = {"cifar10_lt": "cifar10", "cifar100_lt": "cifar100", "glyphs": "cifar10"}


@cache
def logs() -> pd.DataFrame:
    """Every figure: log, data, alpha, imbalance, clients, participation, norm, best, authors_mean
    (the last round), and ``CELL``.
    """
    found = pd.read_csv(Path(__file__).with_name("authors_logs.csv"))
    names = {"method": "algorithm", "head_assumed": "head", "last": "authors_mean"}
    return found.assign(scope=found.measure.map(SCOPES)).rename(columns=names)


def cells(settings: Settings) -> pd.DataFrame:
    """``CELL``, authors_mean and authors_log of the logs with the settings' data, alpha and
    imbalance; empty if there are none.

    Where two logs have a cell, the one whose number of clients and participation are the settings'
    comes first.
    """
    known = logs()[logs().log != SWEEP]
    for name, value in {
        "data": DATA.get(settings.data),
        "alpha": settings.alpha,
        "imbalance": settings.imbalance,
    }.items():
        known = known[known[name] == value]
    near = (known.clients == settings.clients).astype(int) + (
        known.participation == settings.participation
    )
    known = (
        known.assign(near=near)
        .sort_values("near", ascending=False, kind="stable")
        .drop_duplicates(CELL)
    )
    return known.rename(columns={"log": "authors_log"})[[*CELL, "authors_mean", "authors_log"]]


def sweep() -> pd.DataFrame:
    """GM of the authors' sweep over nu, in log h's setting: norm, authors_mean.

    Their SSE-C of norm 0.01 really had 0.017.
    """
    return logs()[logs().log == SWEEP][["norm", "authors_mean"]].reset_index(drop=True)
