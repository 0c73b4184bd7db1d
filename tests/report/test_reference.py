"""The committed reference agrees with itself: its notebooks with each other."""

import json
import zipfile
from functools import cache
from io import BytesIO
from itertools import combinations
from pathlib import Path

import pandas as pd
import pytest

from fedmuscle_lib.core.notebooks import runs_of
from fedmuscle_lib.fedmuscle import arms

ROOT = Path(__file__).parents[2]
FIGURES = ROOT / "figures"
FOLDERS = sorted(path.parent for path in FIGURES.glob("*/*/provenance.json"))


@cache
def provenance(folder):
    return json.loads((folder / "provenance.json").read_text(encoding="utf8"))


@cache
def federation(folder):
    """Who took part in a notebook's runs, as far as its system's tables tell them apart, and
    settings that its reference overrides.

    A public set of another size is another one. Runs that are evaluated in other rounds are runs of
    their own, and may have been computed when sums were taken in another order.
    """
    overrides = provenance(folder).get("parameters", {}).get("overrides", {})
    settings = provenance(folder)["shared"].get("settings", {})
    table = pd.read_csv(folder / "table.csv")
    users = table[[name for name in ("user", "model", "task", "metric", "scope") if name in table]]
    return (
        set(users.itertuples(index=False, name=None)),
        overrides,
        [settings.get(name) for name in ("public_size", "evaluate_every")],
    )


@cache
def with_seeds(folder, name):
    """The rows of a CSV file without the paper's numbers, each with the seeds that it is over."""
    runs = pd.DataFrame([run["settings"] | {"algorithm": run["arm"]} for run in runs_of(folder)])
    rows = pd.read_csv(folder / name)

    @cache
    def seeds(arm, public):
        own = runs[runs.algorithm == arm]
        if public is not None:
            own = own[arms.is_blind(arm) | (own.public == public)]
        return ",".join(map(str, sorted(set(own.seed))))

    rows["seeds"] = [
        seeds(row.algorithm, getattr(row, "public", None)) for row in rows.itertuples()
    ]
    return rows.loc[:, ~rows.columns.str.startswith("paper")]


@cache
def tables(folder):
    return {path.name for path in folder.glob("*.csv") if path.name.startswith(("table", "delta"))}


def disagreements(one, other):
    """The rows of tables and Deltas that both notebooks have, for the same users and seeds, with
    different numbers.
    """
    found = []
    shared = tables(one) & tables(other)
    for name in sorted(shared) if shared and federation(one) == federation(other) else ():
        ours, theirs = with_seeds(one, name), with_seeds(other, name)
        if set(ours) != set(theirs):
            continue  # an ablation's rows are of points
        key = [
            column
            for column in (
                "public",
                "user",
                "model",
                "task",
                "metric",
                "scope",
                "head",
                "masked",
                "group",
                "algorithm",
                "seed",
                "seeds",
            )
            if column in ours
        ]
        both = ours.merge(theirs, on=key, suffixes=("", " there"))
        for column in ours.columns.difference(key):
            here, there = both[column], both[f"{column} there"]
            differing = both[(here != there) & ~(here.isna() & there.isna())]
            found += [
                f"{name}: {column} of {' '.join(map(str, row))}"
                for row in differing[key].itertuples(index=False)
            ]
    return found


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(FIGURES)))
def test_a_folder_is_drawn_again_with_the_seeds_of_its_runs(folder):
    of_runs = (run["settings"] for run in runs_of(folder))
    seeds = {one["seed"] for one in of_runs if one.get("evaluate_on") != "validation"}
    assert not seeds or set(provenance(folder)["parameters"]["seeds"]) == seeds, (
        "other seeds' runs are not shipped, so arms are left out"
    )


def test_cells_that_two_notebooks_share_are_the_same():
    shipped = [
        folder for folder in FOLDERS if provenance(folder).get("shipped")
    ]  # other runs may be another commit's
    pairs = [
        pair for pair in combinations(shipped, 2) if pair[0].parent == pair[1].parent
    ]  # of one profile
    assert pairs
    assert not {
        f"{one.name}, {other.name}": found
        for one, other in pairs
        if (found := disagreements(one, other))
    }


def test_small_departs_from_the_papers_data_as_its_page_says():
    """docs/data.md: two topics, and one set of test images for MLC, one for SS. Without a model,
    that shows in the score of the best constant answer.
    """
    seen = []
    with zipfile.ZipFile(FIGURES / "small" / "runs.zip") as runs:
        for name in (n for n in runs.namelist() if n.endswith(".zip")):
            with zipfile.ZipFile(BytesIO(runs.read(name))) as run:
                told = json.loads(run.read("provenance.json"))
            if told.get("settings", {}).get("setup") == "setup2" and len(told["trivial"]) == 10:
                seen.append([told["trivial"][str(user)] for user in range(1, 11)])
    assert seen
    for mlc1, mlc2, mlc3, *_, ss7, ss8, tc9, tc10 in seen:
        assert mlc1 == mlc2 == mlc3 and ss7 == ss8
        assert tc9 + tc10 == pytest.approx(100)  # the larger shares of two topics of two users
