"""Finished runs whose metrics are known beforehand, to report on."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pandas as pd
import torch

from fedmuscle_lib import Settings, report
from fedmuscle_lib.fedmuscle import arms
from fedmuscle_lib.fedmuscle.setups import SETUPS
from fedmuscle_lib.fedmuscle.system import TABLES
from fedmuscle_lib.runs import History, Record
from fedmuscle_lib.runs.address import address_of
from fedmuscle_lib.tasks import TASKS

LARGE = "τ(SS, TC) = 100"


def history(
    algorithm,
    values,
    *,
    seed=0,
    public="voc",
    before=None,
    flops=10**12,
    sent=100,
    origin="computed",
    caveats=(),
    facts=None,
    **settings,
):
    """A finished run whose users ended with ``values``, and had ``before`` (the same if None)
    before the last alignment.

    The n-th user's trivial answer reaches n per cent, and one more for each seed. ``facts`` stand
    in its provenance.
    """
    users = SETUPS[settings.get("setup", "setup1")]
    if len(values) < len(users):
        users = [user for user in users if user.number in settings["users"]]
    rows = [
        dict(
            round=round,
            phase=phase,
            user=u.number,
            model=u.model,
            task=u.task,
            metric=TASKS[u.task].metric,
            value=value / (3 - round),
        )
        for round in (1, 2)
        for phase, phase_values in (("after_local", before or values), ("after_alignment", values))
        for u, value in zip(users, phase_values, strict=True)
    ]
    costs = [
        {
            "round": round,
            "user": u.number,
            "uplink_bytes": sent,
            "downlink_bytes": 3 * sent,
            "flops": flops,
            "flops_done": flops,
        }
        for round in (1, 2)
        for u in users
    ]
    provenance = {
        "seconds": 5.0,
        "peak_memory_bytes": 2**30,
        "finished": "2026-01-01",
        "machine": "a machine",
        "settings": {},
    }
    provenance |= {"address": "", "versions": {}}
    provenance["trivial"] = {str(u.number): float(u.number + seed) for u in users}
    return History(
        Settings(algorithm=algorithm, public=public, seed=seed, **settings),
        pd.DataFrame(rows),
        pd.DataFrame(costs),
        losses=pd.DataFrame(columns=TABLES["losses"]),
        measures=pd.DataFrame(columns=TABLES["measures"]),
        provenance=provenance | (facts or {}),
        origin=origin,
        caveats=caveats,
    )


def packed_run(made):
    """The content of the run's file, as if it had been computed here; its two rounds are the last
    ones.
    """
    address = address_of(made.settings)
    facts = made.provenance | {"address": str(address), "settings": made.settings.recorded()}
    facts |= {"inputs": dict(address.inputs), "torch": torch.__version__}
    tables = {name: getattr(made, name) for name in TABLES}
    tables["metrics"] = made.metrics.assign(round=made.metrics["round"] + made.settings.rounds - 2)
    return Record(tables, facts).pack()


def keep(made, store):
    """Store the run as if it had been computed here."""
    entry = store.entry(address_of(made.settings))
    entry.path.parent.mkdir(parents=True)
    entry.save(packed_run(made))


# the profile that names a checkpoint for every model
history2 = partial(history, public="flickr30k", setup="setup2", profile="paper")


def as_arm(runs, setting):
    """The runs as the arm "<algorithm>, <setting>"."""
    return [replace(run, setting=setting) for run in runs]


def as_runs(table):
    """A table of the paper as runs of one seed: an algorithm that never looks at public data has
    one for all public sets.
    """
    cells = report.paper_table(table)
    blind = cells.algorithm.map(arms.is_blind)
    groups = cells[~blind | (cells.public == cells.public[0])].groupby(
        ["public", "algorithm"], sort=False
    )["mean"]
    make = history2 if cells.setup[0] == "setup2" else history
    runs = []
    for (public, name), means in groups:
        algorithm, _, setting = name.partition(", ")
        run = [make(algorithm, list(means), public=public)]
        runs += as_arm(run, setting)
    return runs
