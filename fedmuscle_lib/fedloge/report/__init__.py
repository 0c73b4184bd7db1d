"""From runs of this system to its tables: accuracies beside the authors' logs, what the seeds allow one to say, and what it cost.

In the order of their imports: ``authors`` (their logs), ``tables``, ``words``, ``files`` and ``classifier`` (SSE-C itself).
"""

from fedmuscle_lib.core.notebooks import results_folder, written
from fedmuscle_lib.fedloge.report.authors import logs
from fedmuscle_lib.fedloge.report.classifier import cosines, norms, run_norms
from fedmuscle_lib.fedloge.report.files import provenance, write
from fedmuscle_lib.fedloge.report.tables import (
    HEADS,
    OVER_FEDAVG,
    REALIGNMENTS,
    TABLE_COLUMNS,
    costs,
    departures,
    differences,
    label,
    laid_out,
    mask_gains,
    run_methods,
    scores,
    side_by_side,
    table,
)
from fedmuscle_lib.fedloge.report.words import hypothesis, note, verdict, verdicts
from fedmuscle_lib.report.provenance import save

__all__ = [
    "HEADS",
    "OVER_FEDAVG",
    "REALIGNMENTS",
    "TABLE_COLUMNS",
    "cosines",
    "costs",
    "departures",
    "differences",
    "hypothesis",
    "label",
    "laid_out",
    "logs",
    "mask_gains",
    "norms",
    "note",
    "provenance",
    "results_folder",
    "run_methods",
    "run_norms",
    "save",
    "scores",
    "side_by_side",
    "table",
    "verdict",
    "verdicts",
    "write",
    "written",
]
