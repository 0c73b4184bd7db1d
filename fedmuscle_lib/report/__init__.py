"""From runs to tables: Delta beside the paper's cells, what the seeds allow one to say, and what it
cost.

All tables are made of the six functions of ``frame``. It, ``statistics`` and ``provenance`` know no
federation and serve other systems too. ``results`` writes
the tables of README, RESULTS.md and findings. Nothing here trains or loads a model:
``fedmuscle_lib.fedmuscle.arms`` and ``ablations`` run what is reported on.
"""

from fedmuscle_lib.core.notebooks import page_seeds, results_folder, written
from fedmuscle_lib.fedmuscle.ablations import (
    UNCONNECTED,
    in_rounds,
    only,
    readings,
    run_points,
)
from fedmuscle_lib.fedmuscle.arms import (
    BASELINE,
    HEADLINE,
    OTHER_MOMENT,
    TUNED_BASELINE,
    label,
    run_arms,
)
from fedmuscle_lib.report.claims import verdicts
from fedmuscle_lib.report.costs import costs
from fedmuscle_lib.report.departures import departures
from fedmuscle_lib.report.notes import about, models, note, page_table, seeds_taken
from fedmuscle_lib.report.paper import cells, paper_gains, paper_table, printed
from fedmuscle_lib.report.provenance import Sentences, save, write_without_runs
from fedmuscle_lib.report.side_by_side import side_by_side
from fedmuscle_lib.report.statistics import interval, wide_intervals
from fedmuscle_lib.report.tables import (
    by_point,
    deltas,
    ends,
    metrics,
    moved,
    over_rivals,
    references,
    tidy,
    write,
)
