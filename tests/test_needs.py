"""What notebooks need: their questions are read without being answered, and counted against the store."""

from __future__ import annotations

from math import isnan, nan

import nbformat
import pandas as pd
import pytest
from fedmuscle_lib.reproduce.needs import asked_for
from histories import history, keep

from fedmuscle_lib import Store
from fedmuscle_lib.reproduce import needs, needs_in_words

PARAMETERS = """profile: str = "mini"  # which data
seeds: list = [0]  # of the runs
overrides: dict = {"rounds": 7}  # settings"""
RUNS = """from fedmuscle_lib import report, run_all
from fedmuscle_lib.fedmuscle.settings import parse
raise_never = 1 / 0 if False else seeds
histories = report.run_arms({**overrides, "profile": profile}, ["local", "fedmuscle"], seeds, ["voc"], controls=[])
folder = open("/no/such/folder")
again = run_all([parse({**overrides, "profile": profile, "algorithm": "local", "seed": seed}) for seed in raise_never])"""


@pytest.fixture
def folder(tmp_path):
    """Notebooks: one asks for local training and FedMuscle, one for users that mini does not have, one for nothing, and one is wrong."""
    for name, cells in {
        "table": [PARAMETERS, RUNS, "print(histories[0].metrics / 0)"],
        "hybrids": [PARAMETERS.replace('{"rounds": 7}', '{"setup": "setup1_vit"}'), RUNS],
        "lesson": [PARAMETERS, "print(profile)"],
        "wrong": ["%%time\nworks = 1", "run_all(works)"],
    }.items():
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
        nbformat.write(notebook, tmp_path / f"{name}.ipynb")
    return tmp_path


def test_a_notebooks_questions_are_read_and_nothing_of_it_is_executed_besides(folder):
    asked = asked_for(folder / "table.ipynb", seeds=[3, 4])
    assert [(s.algorithm, s.seed, s.rounds) for s in asked] == [
        ("local", 3, 7),
        ("fedmuscle", 3, 7),
        ("local", 4, 7),
        ("fedmuscle", 4, 7),
        ("local", 3, 7),
        ("local", 4, 7),
    ]
    assert asked_for(folder / "lesson.ipynb") == []
    assert asked_for(folder / "hybrids.ipynb") is asked_for(folder / "wrong.ipynb") is None


def row(folder, store):
    counts = needs(["mini"], folder, store)
    assert counts.notebook.tolist() == ["hybrids", "table", "wrong"] and counts.runs.isna().tolist() == [True, False, True]
    return counts.iloc[1].drop(["profile", "notebook"]).tolist(), needs_in_words(counts).splitlines()[-2]


def test_counts_are_those_of_the_store(folder, store, tmp_path):
    counts, line = row(folder, store)
    assert counts[:3] == [2, 0, 0] and all(map(isnan, counts[3:]))
    assert line == "| [table](table.ipynb) | 2 runs: 2 to compute |"

    keep(history("local", [40] * 6, rounds=7, facts={"seconds": 120.0}), store)
    counts, line = row(folder, store)
    assert counts[:3] == [2, 0, 1] and isnan(counts[4]), "nobody has measured FedMuscle"
    assert line == "| [table](table.ipynb) | 2 runs: 1 computed here, 1 to compute |"

    for seed, seconds in ((1, 100.0), (2, 300.0), (3, 800.0)):
        keep(history("fedmuscle", [40] * 6, rounds=7, seed=seed, facts={"seconds": seconds}), store)
    keep(history("fedmuscle", [40] * 6, rounds=8, facts={"seconds": 1e6}), store)
    assert row(folder, store) == ([2, 0, 1, 7.0, 5.0], "| [table](table.ipynb) | 2 runs, 7 min: 1 computed here, 1 to compute in 5 min |")

    keep(history("fedmuscle", [40] * 6, rounds=7, facts={"seconds": 60.0}), store)
    shipped = tmp_path / "shipped"
    for entry in list(store.entries()):
        store.ship(entry.address, shipped)
    assert row(folder, Store(tmp_path / "none", (shipped,))) == ([2, 2, 0, 3.0, 0.0], "| [table](table.ipynb) | 2 runs, 3 min: 2 shipped |")


def test_a_notebook_that_a_profile_can_not_run_says_so():
    counts = pd.DataFrame(
        [("mini", "a", nan, nan, nan, nan, nan), ("small", "a", 1, 0, 0, 0.4, 0.4)],
        columns=["profile", "notebook", "runs", "shipped", "computed", "minutes", "minutes_left"],
    )
    assert needs_in_words(counts).splitlines() == [
        "| notebook | `mini` | `small` |",
        "| --- | --- | --- |",
        "| [a](a.ipynb) | can't run in this profile | 1 runs, under a minute: 1 to compute in under a minute |",
    ]
