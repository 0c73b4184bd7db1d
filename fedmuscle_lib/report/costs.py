"""Costs of runs: bytes, computation, time and memory."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from fedmuscle_lib.runs.history import History


def costs(histories: Sequence[History]) -> pd.DataFrame:
    """Cost of a run of each algorithm, mean over its runs.

    Returns:
        algorithm, runs, uplink_bytes and downlink_bytes (per user and round), tflop (of all users
        and rounds, every call through the whole backbone), tflop_done (what ran: what training
        never changes is computed once), seconds, peak_memory_mib (of the process that ran it, with
        whatever it had run before). Operations before the first round, such as those of a reference
        of the public set or of the probe's fit, are in neither; the bytes of that reference are in
        the first round's.
    """
    rows = [
        {
            "algorithm": history.arm,
            "uplink_bytes": history.costs.uplink_bytes.mean(),
            "downlink_bytes": history.costs.downlink_bytes.mean(),
            "tflop": history.costs.flops.sum() / 1e12,
            "tflop_done": history.costs.flops_done.sum() / 1e12,
            "seconds": history.provenance["seconds"],
            "peak_memory_mib": history.provenance["peak_memory_bytes"] / 2**20,
        }
        for history in histories
    ]
    groups = pd.DataFrame(rows).groupby("algorithm", sort=False)
    means = groups.mean()
    means.insert(0, "runs", groups.size())
    return means.reset_index()
