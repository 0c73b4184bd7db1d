"""From runs to tables: Delta beside the paper's cells, what the seeds allow one to say, and what it cost.

Functions of metrics take the ``phase`` of the last round that they read, ``HEADLINE`` by default (``fedmuscle_lib.fedmuscle.arms``).

The files, in the order in which they build on each other: ``statistics`` and ``sources``, which know no federation and serve other
systems too; then ``arms``, ``runs``, ``scores``, ``paper``, ``departures``, ``delta``, ``costs``, ``compare``, ``layout``, ``files``,
``words``. ``places`` and ``world_table`` serve a notebook each, ``delta_map`` and ``controls``. Two more keep the written pages true to
the committed CSV files: ``prose`` and ``results``.
"""

from fedmuscle_lib.core.notebooks import results_folder, written
from fedmuscle_lib.fedmuscle.arms import (
    BASELINE,
    CONTROLS,
    HEADLINE,
    OTHER_MOMENT,
    TUNED_BASELINE,
    Arm,
    added,
    algorithm_of,
    arm,
    as_arm,
    is_blind,
    label,
    run_arms,
)
from fedmuscle_lib.report.compare import (
    delta_difference,
    delta_over,
    gain_difference,
    in_short,
    over_baseline,
    paired_deltas,
    per_user_difference,
    rank_agreement,
)
from fedmuscle_lib.report.costs import alignment_steps, costs, ledger, local_steps, relative_costs, replies
from fedmuscle_lib.report.delta import DELTA_COLUMNS, TABLE_COLUMNS, curve, delta, delta_by_seed, delta_by_task, delta_unshared, table
from fedmuscle_lib.report.departures import departures
from fedmuscle_lib.report.map import (
    UNFORGETTING,
    Point,
    delta_map,
    map_by_place,
    map_in_words,
    map_peers,
    map_steps,
    papers_steps,
    run_map,
    write_map,
)
from fedmuscle_lib.report.paper import PAPER, paper_deltas, paper_gains, paper_table
from fedmuscle_lib.report.provenance import save
from fedmuscle_lib.report.scores import USER, references, relative, scores
from fedmuscle_lib.report.sentences import compared, cost_order, displaced, in_three_sentences, note, users_told_apart
from fedmuscle_lib.report.side_by_side import ORIGINS, by_public, by_task, side_by_side
from fedmuscle_lib.report.statistics import CONFIDENCE, interval, over_seeds
from fedmuscle_lib.report.world_table import in_short_of_worlds, papers_world, world, worlds
from fedmuscle_lib.report.write import data_manifests, file_of, provenance_of, write

__all__ = [
    "BASELINE",
    "CONFIDENCE",
    "CONTROLS",
    "DELTA_COLUMNS",
    "HEADLINE",
    "ORIGINS",
    "OTHER_MOMENT",
    "PAPER",
    "TABLE_COLUMNS",
    "TUNED_BASELINE",
    "UNFORGETTING",
    "USER",
    "Arm",
    "Point",
    "added",
    "algorithm_of",
    "alignment_steps",
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
    "delta_map",
    "delta_over",
    "delta_unshared",
    "departures",
    "displaced",
    "file_of",
    "gain_difference",
    "in_short",
    "in_short_of_worlds",
    "in_three_sentences",
    "interval",
    "is_blind",
    "label",
    "ledger",
    "local_steps",
    "map_by_place",
    "map_in_words",
    "map_peers",
    "map_steps",
    "note",
    "over_baseline",
    "over_seeds",
    "paired_deltas",
    "paper_deltas",
    "paper_gains",
    "paper_table",
    "papers_steps",
    "papers_world",
    "per_user_difference",
    "provenance_of",
    "rank_agreement",
    "references",
    "relative",
    "relative_costs",
    "replies",
    "results_folder",
    "run_arms",
    "run_map",
    "save",
    "scores",
    "side_by_side",
    "table",
    "users_told_apart",
    "world",
    "worlds",
    "write",
    "write_map",
    "written",
]
