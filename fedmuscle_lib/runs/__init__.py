"""Runs: settings in, histories out, whatever the federation. ``run`` and ``run_all`` compute what
is not stored.

In the order of their imports: ``settings`` (of any run), ``system`` (the seam to the federations),
``address`` (all that a run depends on), ``history``, ``store`` (on disk), ``progress``, ``compute``
(one run, round after round) and ``workers`` (many runs).
"""

from fedmuscle_lib.runs.compute import NotStored, run, stored
from fedmuscle_lib.runs.history import History
from fedmuscle_lib.runs.progress import Interrupted
from fedmuscle_lib.runs.settings import RunSettings
from fedmuscle_lib.runs.store import Entry, Record, Store, default_store
from fedmuscle_lib.runs.system import SYSTEMS, Experiment, Progress, System, Tick, named, system_of
from fedmuscle_lib.runs.workers import run_all, run_named
