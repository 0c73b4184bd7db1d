"""Runs: settings in, histories out. ``run`` and ``run_all`` compute what is not stored; the other modules are what they stand on.

In the order of their imports: ``history``, ``address`` (what a run depends on), ``store`` (on disk), ``progress``, ``build`` (the
federation), ``worth`` (of its checkpoints), ``train`` (its rounds), ``compute`` (one run), ``crew`` (worker processes), ``pool``
(many runs).
"""

from __future__ import annotations

from fedmuscle_lib.algorithms import PHASES, Phase
from fedmuscle_lib.runs.build import build, torch_threads
from fedmuscle_lib.runs.compute import NotStored, may_compute, run, stored
from fedmuscle_lib.runs.history import History
from fedmuscle_lib.runs.pool import run_all
from fedmuscle_lib.runs.progress import Progress, Tick
from fedmuscle_lib.runs.store import Busy, Damaged, Entry, Record, Store, default_store
from fedmuscle_lib.runs.worth import one_shot

__all__ = [
    "PHASES",
    "Busy",
    "Damaged",
    "Entry",
    "History",
    "NotStored",
    "Phase",
    "Progress",
    "Record",
    "Store",
    "Tick",
    "build",
    "default_store",
    "may_compute",
    "one_shot",
    "run",
    "run_all",
    "stored",
    "torch_threads",
]
