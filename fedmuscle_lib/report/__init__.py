"""From runs to tables: Delta beside the paper's cells, what the seeds allow one to say, and what it cost.

Every function takes the ``phase`` of a round that it reads: "after_alignment", the literal end of Algorithm 1, or "after_local".

The files, in the order in which they build on each other: ``arms``, ``statistics``, ``scores``, ``paper``, ``departures``, ``delta``,
``costs``, ``compare``, ``layout``, ``files``, ``words``. Two more keep the written pages true to the committed CSV files: ``prose``
and ``results``.
"""

from fedmuscle_lib.report.arms import BASELINE, Arm, added, algorithm_of, arm, as_arm, is_blind, label
from fedmuscle_lib.report.compare import (
    delta_difference,
    delta_over,
    gain_difference,
    over_baseline,
    per_user_difference,
    rank_agreement,
)
from fedmuscle_lib.report.costs import costs, ledger, relative_costs, replies
from fedmuscle_lib.report.delta import DELTA_COLUMNS, TABLE_COLUMNS, curve, delta, delta_by_seed, delta_by_task, delta_unshared, table
from fedmuscle_lib.report.departures import departures
from fedmuscle_lib.report.files import data_manifests, provenance, results_folder, save, write
from fedmuscle_lib.report.layout import ORIGINS, by_public, by_task, interval, side_by_side
from fedmuscle_lib.report.paper import PAPER, paper_deltas, paper_gains, paper_table
from fedmuscle_lib.report.scores import USER, relative, scores, trivial
from fedmuscle_lib.report.statistics import CONFIDENCE, over_seeds
from fedmuscle_lib.report.words import against_target, compared, cost_order, displaced, note, users_told_apart

__all__ = [
    "BASELINE",
    "CONFIDENCE",
    "DELTA_COLUMNS",
    "ORIGINS",
    "PAPER",
    "TABLE_COLUMNS",
    "USER",
    "Arm",
    "added",
    "against_target",
    "algorithm_of",
    "arm",
    "as_arm",
    "by_public",
    "by_task",
    "compared",
    "cost_order",
    "costs",
    "curve",
    "data_manifests",
    "delta",
    "delta_by_seed",
    "delta_by_task",
    "delta_difference",
    "delta_over",
    "delta_unshared",
    "departures",
    "displaced",
    "gain_difference",
    "interval",
    "is_blind",
    "label",
    "ledger",
    "note",
    "over_baseline",
    "over_seeds",
    "paper_deltas",
    "paper_gains",
    "paper_table",
    "per_user_difference",
    "provenance",
    "rank_agreement",
    "relative",
    "relative_costs",
    "replies",
    "results_folder",
    "save",
    "scores",
    "side_by_side",
    "table",
    "trivial",
    "users_told_apart",
    "write",
]
