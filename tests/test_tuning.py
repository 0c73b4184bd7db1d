"""Each task gets the configuration that is best for its own users on the validation split."""

from __future__ import annotations

import json

import pytest

from fedmuscle_lib import Settings, run
from fedmuscle_lib.fedmuscle import profiles
from fedmuscle_lib.fedmuscle.settings import BY_TASK, parse
from fedmuscle_lib.runs.address import address_of
from fedmuscle_lib.tuning import CONFIGURATIONS, tune

QUICK = CONFIGURATIONS["base"] | {"head_hidden": 32, "lr": 3e-3, "epochs": 3}
THREE = {
    "slow": QUICK | {"head_hidden": 8, "lr": 1e-6, "epochs": 1},
    "quick": QUICK,
    "wild": QUICK | {"lr": 1e9},
}


def test_each_configuration_is_another_recipe_that_every_task_can_have():
    recipes = list(CONFIGURATIONS.values())
    assert all(recipes.count(recipe) == 1 for recipe in recipes)
    for recipe in recipes:
        assert recipe.keys() == set(BY_TASK)
        parse(recipe | {"setup": "setup2"})


@pytest.fixture(scope="module")
def common(small_world):
    """Three users of two tasks, for one round."""
    places = {"data_dir": small_world, "models_path": small_world / "models"}
    sizes = {"rounds": 1, "train_samples": {"IC100": 40, "IC10": 40}}
    return {"algorithm": "local", "users": (4, 5, 6), **places, **sizes}


@pytest.fixture(scope="module")
def table(common, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDMUSCLE_RUNS", str(tmp_path_factory.mktemp("runs")))
        patch.setenv("FEDMUSCLE_SHIPPED", "0")
        return tune(common, (100,), THREE)


def test_a_score_is_the_mean_over_the_tasks_users_alone_on_the_validation_split(common, table):
    """A user trains alone, so what the others of its run are given changes nothing for it."""
    for task, users in (("IC100", (4, 5)), ("IC10", (6,))):
        alone = parse(common | QUICK | {"users": users, "seed": 100, "evaluate_on": "validation"})
        (value,) = table[(table.task == task) & (table.configuration == "quick")].value
        assert value == pytest.approx(run(alone).final().value.mean())


def test_a_task_gets_the_best_and_a_configuration_that_diverges_has_no_value(table):
    assert table.value.isna().tolist() == [False, False, False, False, True, True]
    for _, rows in table.groupby("task"):
        assert rows[rows.chosen].configuration.tolist() == [
            rows.set_index("configuration").value.idxmax()
        ]
    assert table[table.configuration == "quick"][list(BY_TASK)].iloc[0].to_dict() == QUICK


def test_runs_of_a_tuned_recipe_are_found_under_its_numbers(tmp_path, monkeypatch):
    """The protocol is a name; the run sees its numbers."""
    monkeypatch.setattr(profiles, "FOLDER", tmp_path)
    chosen = {"IC10": {"recipe": QUICK}, "IC100": {"recipe": QUICK}}
    (tmp_path / "mini_tuned.json").write_text(json.dumps(chosen))
    whose = {"users": (4, 5, 6), "others": 2}
    tuned = address_of(Settings(**whose, protocol="tuned"))
    assert tuned == address_of(Settings(**whose, **QUICK)) != address_of(Settings(**whose))
