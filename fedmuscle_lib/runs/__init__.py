"""Runs: settings in, histories out, whatever the federation. ``run`` and ``run_all`` compute what is not stored.

In the order of their imports: ``system`` (the seam to the federations), ``history``, ``address`` (what a run depends on), ``store`` (on
disk), ``progress``, ``train`` (round after round), ``compute`` (one run), ``crew`` (worker processes), ``pool`` (many runs).
"""

from __future__ import annotations

from fedmuscle_lib.runs.archive import Damaged
from fedmuscle_lib.runs.compute import NotStored, asked_by, may_compute, run, stored
from fedmuscle_lib.runs.history import History
from fedmuscle_lib.runs.loop import torch_threads
from fedmuscle_lib.runs.pool import run_all
from fedmuscle_lib.runs.progress import Interrupted, Progress, Tick
from fedmuscle_lib.runs.settings import RunSettings
from fedmuscle_lib.runs.store import Busy, Entry, Record, Store, default_store
from fedmuscle_lib.runs.system import SYSTEMS, TABLE_NAMES, Experiment, System, named, system_of

__all__ = [
    "SYSTEMS",
    "TABLE_NAMES",
    "Busy",
    "Damaged",
    "Entry",
    "Experiment",
    "History",
    "Interrupted",
    "NotStored",
    "Progress",
    "Record",
    "RunSettings",
    "Store",
    "System",
    "Tick",
    "asked_by",
    "default_store",
    "may_compute",
    "named",
    "run",
    "run_all",
    "stored",
    "system_of",
    "torch_threads",
]
