"""Costs of runs: bytes, computation, time and memory, and the bytes of the three replies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pandas as pd

from fedmuscle_lib.core.randomness import batches
from fedmuscle_lib.fedmuscle.settings import Settings
from fedmuscle_lib.muscle.wire import REPLIES, paper_cost_gb, reply_nbytes
from fedmuscle_lib.report.paper import paper_table
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


def ledger(settings: Settings, members: Iterable[int] = range(1, 6)) -> pd.DataFrame:
    """Bytes per user and round, up and down together, of the three replies, in float32, beside
    Table 5.

    Returns:
        M, dense_mb, factored_mb, gradient_mb (10^6 bytes, at the settings' B, d and public set),
        paper_formula_gb (2^30 bytes; Table 5's column as (2 B d + B^M (2 d + 1/8)) bytes a batch,
        with B = 20, d = 256, 5000 samples and 16 bits, which gives its printed digits),
        paper_table5_gb.
    """
    printed = paper_table("table5").set_index("M").cost_per_round_gb
    sizes = [
        len(rows) for rows in batches(settings.public_size, settings.public_batch, "ledger")
    ] * settings.cl_epochs
    rows = []
    for m in members:
        row: dict[str, float] = {"M": m}
        for kind in REPLIES:
            row[f"{kind}_mb"] = (
                sum(
                    4 * b * settings.proj_dim + reply_nbytes(kind, b, settings.proj_dim, m)
                    for b in sizes
                )
                / 1e6
            )
        rows.append(
            row
            | {
                "paper_formula_gb": paper_cost_gb(m),
                "paper_table5_gb": printed.get(m, float("nan")),
            }
        )
    return pd.DataFrame(rows)
