"""The paper's cells: its tables, as ``paper_tables/*.csv`` hold them, and what they say about
Delta.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import pandas as pd

from fedmuscle_lib.fedmuscle.settings import Settings
from fedmuscle_lib.fedmuscle.setups import SETUPS
from fedmuscle_lib.report.frame import gains

USER = ["public", "user", "model", "task", "metric"]
_TABLES = Path(__file__).with_name("paper_tables")
# Where runs find the paper's cells; Tables 1 and 7 agree on those that both have.
PAPER = ("table1", "table7", "table2")
_SETUP = {"table4": "setup_noniid", "table2": "setup2", "table9": "setup2"}  # others: setup1
# The files name public sets as the datasets' authors do; Table 7's names objectives for our
# algorithms, Table 9's no temperature.
_PUBLIC = {"Pascal VOC": "voc", "COCO": "coco", "CIFAR-100": "cifar100", "Flickr30K": "flickr30k"}
_ALGORITHM = {
    "table7": {"muscle": "fedmuscle"},
    "table9": {"fedmuscle": "fedmuscle, τ(SS, TC) = 100"},
}
# What their arms vary, as in our tables.
_VARIED = {
    "table4": r"N = (?P<n_users>\d+)",
    "table8": r"R = (?P<rounds>\d+), T = (?P<cl_epochs>\d+)",
}


@lru_cache(maxsize=8)
def paper_table(name: str) -> pd.DataFrame:
    """A table of the paper, such as "table7", with this project's names of setups, public sets and
    algorithms.
    """
    about = name.partition("_")[0]
    names = {"public": _PUBLIC, "algorithm": _ALGORITHM.get(about, {})}
    table = pd.read_csv(_TABLES / f"{name}.csv").replace(names)
    return table.assign(setup=_SETUP.get(about, "setup1"))


def paper_gains(*names: str) -> pd.DataFrame:
    """The paper's cells as improvements over local training in the same table: setup, ``USER``,
    algorithm, gain (per cent).
    """
    tables = (paper_table(name).rename(columns={"mean": "value"}) for name in names)
    found = pd.concat(gains(rows.drop(columns="std").assign(seed=0)) for rows in tables)
    return found[["setup", *USER, "algorithm", "gain"]].drop_duplicates(ignore_index=True)


def cells(settings: Settings, tables: Sequence[str] = PAPER) -> pd.DataFrame:
    """The cells of these tables, if they are about the runs' setup: public, user, algorithm, what
    the table varies, paper_mean, paper_std. Local training's stand at every point.
    """
    parts = [
        _at_points(name, paper_table(name))
        for name in tables
        if _SETUP.get(name, "setup1") == settings.setup and name != "table5"
    ]
    found = pd.concat(
        parts or [pd.DataFrame(columns=["public", "user", "algorithm", "mean", "std"])]
    )
    found = found.rename(columns={"mean": "paper_mean", "std": "paper_std"})
    return found.drop(columns=["setup", *USER[2:]], errors="ignore").drop_duplicates()


def printed(settings: Settings, tables: Sequence[str] = PAPER) -> pd.DataFrame:
    """Delta as these tables print it, if they are about the runs' setup and all of its users took
    part: public, algorithm, what the table varies, paper_delta.
    """
    whole = len(settings.members) == len(SETUPS[settings.setup])
    parts = []
    for name in tables:
        if _SETUP.get(name, "setup1") != settings.setup or not (whole or name == "table4"):
            continue
        if name == "table5":
            rows = paper_table(name).rename(columns={"M": "others"})
            rows = rows.assign(public="voc", algorithm="fedmuscle").drop(
                columns="cost_per_round_gb"
            )
        else:
            rows = _at_points(name, paper_table(f"{name}_delta"))
            if name in _VARIED:
                rows = rows[rows.algorithm != "local"]
            rows = rows.drop(columns="delta_from_cells", errors="ignore")
        parts.append(rows.drop(columns="setup").rename(columns={"delta_paper": "paper_delta"}))
    none = pd.DataFrame(columns=["public", "algorithm", "paper_delta"])
    return pd.concat(parts or [none]).drop_duplicates()


def _at_points(name: str, rows: pd.DataFrame) -> pd.DataFrame:
    """A table's rows with what it varies in columns, if it varies something."""
    if name not in _VARIED:
        return rows
    numbers = rows.algorithm.str.extract(_VARIED[name]).dropna().astype(int)
    local = rows[rows.algorithm == "local"].merge(numbers.drop_duplicates(), how="cross")
    return pd.concat([local, rows.join(numbers, how="inner").assign(algorithm="fedmuscle")])
