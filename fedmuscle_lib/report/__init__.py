"""From runs to tables: Delta beside the paper's cells, what the seeds allow one to say, and what it
cost.

Functions of metrics take the ``phase`` of the last round that they read, ``HEADLINE`` by default
(``fedmuscle_lib.fedmuscle.arms``).

``statistics`` and ``provenance`` know no federation and serve other systems too. ``results`` writes
the tables of README, RESULTS.md and findings. Nothing here trains or loads a model:
``fedmuscle_lib.fedmuscle.arms`` and ``ablations`` run what is reported on.
"""

from fedmuscle_lib.core.notebooks import results_folder, written
from fedmuscle_lib.fedmuscle.ablations import (
    OPEN_CHOICES,
    in_rounds,
    run_directed,
    run_groups,
    run_map,
    run_points,
)
from fedmuscle_lib.fedmuscle.arms import (
    BASELINE,
    HEADLINE,
    OTHER_MOMENT,
    TUNED_BASELINE,
    as_arm,
    label,
    run_arms,
)
from fedmuscle_lib.report.ablation import (
    by_effect,
    by_point,
    costs_at_points,
    delta_at_points,
    minus_first,
    of_groups,
    table_at_points,
    write_points,
)
from fedmuscle_lib.report.compare import (
    delta_over,
    gain_difference,
    in_short,
    over_baseline,
    per_user_difference,
    public_difference,
    rank_agreement,
)
from fedmuscle_lib.report.costs import costs, ledger, relative_costs, replies
from fedmuscle_lib.report.delta import (
    DELTA_COLUMNS,
    TABLE_COLUMNS,
    curve,
    delta,
    delta_by_task,
    delta_unshared,
    loss_correlation,
    loss_curve,
    table,
)
from fedmuscle_lib.report.departures import departures
from fedmuscle_lib.report.listening import (
    decisions,
    decisions_in_words,
    delta_by_pair,
    user_by_user,
    users_beside,
)
from fedmuscle_lib.report.map import (
    delta_map,
    map_by_place,
    map_in_words,
    map_peers,
    map_steps,
    papers_steps,
    write_map,
)
from fedmuscle_lib.report.paper import paper_deltas, paper_gains, paper_table
from fedmuscle_lib.report.provenance import Sentences, save, world_in_words, write_without_runs
from fedmuscle_lib.report.scores import USER, class_counts, references, relative
from fedmuscle_lib.report.sentences import (
    about,
    compared,
    cost_order,
    displaced,
    in_three_sentences,
    models,
    note,
    users_told_apart,
)
from fedmuscle_lib.report.side_by_side import by_public, by_task, side_by_side
from fedmuscle_lib.report.statistics import interval, over_seeds, wide_intervals
from fedmuscle_lib.report.write import file_of, provenance_of, write
