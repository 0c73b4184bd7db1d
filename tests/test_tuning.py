"""``tune``: each task gets the configuration that is best for its own users, and nothing is
computed twice.
"""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from fedmuscle_lib import Settings, report, run, tuning
from fedmuscle_lib.__main__ import main
from fedmuscle_lib.fedmuscle import algorithms, profiles
from fedmuscle_lib.fedmuscle.profiles import tuned_protocol
from fedmuscle_lib.fedmuscle.settings import BY_TASK, parse
from fedmuscle_lib.runs.address import address_of
from fedmuscle_lib.tuning import CONFIGURATIONS, FIXED, tune, write

SLOW = CONFIGURATIONS["base"] | {"head_hidden": 8, "lr": 1e-6, "epochs": 1}
QUICK = CONFIGURATIONS["base"] | {"head_hidden": 32, "lr": 3e-3, "epochs": 3}
TWO = {"slow": SLOW, "quick": QUICK}


@pytest.fixture(autouse=True)
def short(monkeypatch) -> None:
    """Lengths of the fixed recipe that cost little."""
    monkeypatch.setattr(tuning, "_LENGTHS", (0, 2))


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """An empty folder in place of the package's, for what ``tune`` writes."""
    (tmp_path / "profiles").mkdir()
    monkeypatch.setattr(profiles, "FOLDER", tmp_path / "profiles")
    return tmp_path / "profiles"


FEW = {"IC100": 40, "IC10": 40}


@pytest.fixture
def base(settings):
    """Users of two tasks, for one round."""
    return settings(algorithm="local", users=(5, 6), rounds=1, local_epochs=2, train_samples=FEW)


@pytest.fixture(scope="module")
def quick(small_settings, tmp_path_factory) -> pd.DataFrame:
    """What three users of two tasks, for one round, reach with a recipe."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "_LENGTHS", (0, 2))
        patch.setenv("FEDMUSCLE_RUNS", str(tmp_path_factory.mktemp("runs")))
        patch.setenv("FEDMUSCLE_SHIPPED", "0")
        three = small_settings(
            algorithm="local", users=(4, 5, 6), rounds=1, local_epochs=2, train_samples=FEW
        )
        return tune(three, (100,), {"quick": QUICK})


def test_at_most_twelve_configurations_are_tried_and_each_is_another_recipe():
    assert len(CONFIGURATIONS) < 12  # and the fixed recipe
    assert all(recipe.keys() == set(BY_TASK) for recipe in CONFIGURATIONS.values())
    recipes = list(CONFIGURATIONS.values())
    assert all(recipes.count(recipe) == 1 for recipe in recipes)
    for name, recipe in CONFIGURATIONS.items():
        parse(recipe)
        assert FIXED not in name


@pytest.mark.slow
def test_a_task_gets_what_is_best_for_its_own_users_over_all_seeds(base):
    table = tune(base, (100, 101), TWO)
    candidates = table[table.role == "candidate"]
    assert (
        candidates[candidates.seed == 100]
        .groupby("task")
        .configuration.apply(list)
        .map(sorted)
        .tolist()
        == [[FIXED, "quick", "slow"]] * 2
    )
    for task, rows in candidates.groupby("task"):
        tried = rows[rows.seed == 100].set_index("configuration").value
        confirmed = rows[rows.seed == 101]
        assert set(confirmed.configuration) == set(tried.nlargest(2).index), task
        means = (
            rows[rows.configuration.isin(confirmed.configuration)]
            .groupby("configuration")
            .value.mean()
        )
        assert set(rows[rows.chosen].configuration) == {means.idxmax()}
    assert not table[table.role == "comparison"].chosen.any()
    assert table[table.configuration == FIXED].epochs.eq(2).all()
    lengths = table[table.role == "comparison"].groupby("task").epochs.apply(list)
    assert lengths.tolist() == [[0, 2]] * 2


def test_a_score_is_the_mean_over_the_tasks_users_alone_on_the_validation_split(base, quick):
    """A user trains alone, so what the others of its run are given changes nothing for it."""
    for task, users in (("IC100", (4, 5)), ("IC10", (6,))):
        alone = base.model_copy(
            update={**QUICK, "users": users, "seed": 100, "evaluate_on": "validation"}
        )
        (value,) = quick[(quick.task == task) & (quick.configuration == "quick")].value
        assert value == pytest.approx(run(alone).final().value.mean(), abs=1e-4)


def test_a_listed_recipe_that_is_the_fixed_one_is_not_tried_twice(base):
    own = {name: base.of(base.members[0], name) for name in BY_TASK} | {"epochs": 2}
    one = base.model_copy(update={"users": (6,)})
    table = tune(one, (100,), {"slow": SLOW, "the same": own})
    assert set(table[table.role == "candidate"].configuration) == {FIXED, "slow"}


def test_a_head_of_another_width_is_not_tried_where_no_head_has_one(settings):
    text_users = settings(
        setup="setup2",
        users=(9,),
        public="flickr30k",
        algorithm="local",
        rounds=1,
        train_samples={"TC": 40},
    )
    wide = tuning._recipe_of(text_users, text_users.members[0]) | {"head_hidden": 999}
    table = tune(text_users, (100,), {"wide": wide, "quick": wide | {"lr": 3e-3}})
    assert table[table.role == "candidate"].configuration.tolist() == [FIXED, "quick"]


def test_an_error_metric_is_ranked_from_below():
    rows = pd.DataFrame(
        {"configuration": ["a", "b", "c"], "metric": "Perplexity", "value": [30.0, 20.0, 20.0]}
    )
    assert tuning._ranked(rows) == ["b", "c", "a"]
    assert tuning._ranked(rows.assign(metric="Accuracy")) == ["a", "b", "c"]


@pytest.mark.slow
def test_the_command_writes_both_files_and_a_second_call_computes_nothing(
    small_world, folder, store, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(tuning, "CONFIGURATIONS", {"quick": QUICK})
    places = [
        f"data_dir={small_world}",
        f"models_path={small_world / 'models'}",
        "users=[5, 6]",
        "rounds=1",
    ]
    line = [
        "tune",
        "--seeds",
        "100,101",
        "--figures",
        str(tmp_path / "figures"),
        *(part for p in places for part in ("-p", p)),
    ]
    assert not tuned_protocol("mini")
    assert main(line) == 0
    assert "tuning.csv: written" in capsys.readouterr().out

    chosen = json.loads((folder / "mini_tuned.json").read_text())
    assert tuned_protocol("mini") and list(chosen) == ["IC100", "IC10"]
    assert chosen["IC10"]["seeds"] == [100, 101] and chosen["IC10"]["split"] == "validation"
    table = pd.read_csv(tmp_path / "figures/mini/tuning.csv")
    for task, choice in chosen.items():
        rows = table[table.chosen & (table.task == task)]
        assert set(rows.configuration) == {choice["configuration"]} and choice[
            "mean"
        ] == pytest.approx(rows.value.mean(), abs=1e-3)
        assert choice["recipe"] == {name: rows[name].iloc[0] for name in BY_TASK}
        assert (
            Settings(protocol="tuned").of(
                next(u for u in Settings().members if u.task == task), "lr"
            )
            == choice["recipe"]["lr"]
        )

    monkeypatch.setenv("FEDMUSCLE_COMPUTE", "0")
    assert main(line) == 0
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "figures/mini/tuning.csv"), table)


def test_tasks_of_another_call_are_kept(base, quick, folder, tmp_path):
    write(quick, base, tmp_path)
    one = quick[quick.task == "IC10"].replace({"configuration": {"quick": "slow"}})
    recipes, rows = write(one, base.model_copy(update={"users": (6,)}), tmp_path)
    assert set(json.loads(recipes.read_text())) == {"IC10", "IC100"}
    table = pd.read_csv(rows)
    assert set(table[table.task == "IC100"].configuration) > {"quick"} and "quick" not in set(
        table[table.task == "IC10"].configuration
    )


def test_an_interrupt_leaves_the_earlier_recipes(base, quick, folder, tmp_path, monkeypatch):
    recipes, _ = write(quick, base, tmp_path)
    before = recipes.read_bytes()

    def interrupt(path, content):
        path.open("wb").write(content[:10])
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Path, "write_bytes", interrupt)
        write(quick, base, tmp_path)
    assert recipes.read_bytes() == before


def test_runs_of_a_tuned_recipe_are_found_under_its_numbers(folder):
    """The protocol is a name; the run sees its numbers."""
    chosen = {"IC10": {"recipe": QUICK}, "IC100": {"recipe": QUICK}}
    (folder / "mini_tuned.json").write_text(json.dumps(chosen))
    whose = {"users": (4, 5, 6), "others": 2}
    tuned = address_of(Settings(**whose, protocol="tuned"))
    assert tuned == address_of(Settings(**whose, **QUICK)) != address_of(Settings(**whose))


def test_the_finalists_of_a_task_are_two_trainings():
    """Texts have one linear layer and no head to widen: the wide head is the base again, and comes
    last.
    """
    base = {
        "head_layers": 2,
        "head_hidden": 64,
        "lora_layers": "linear",
        "lora_blocks": "last",
        "lr": 1e-3,
        "epochs": 40,
    }
    recipes = {"base": base, "wide": base | {"head_hidden": 1024}, "short": base | {"epochs": 20}}
    values = {"base": 80.0, "wide": 80.0, "short": 70.0}
    rows = pd.DataFrame(
        [
            {"configuration": name, "metric": "Accuracy", "value": value}
            for name, value in values.items()
        ]
    )
    by_task = {name: {"TC": recipe, "MLC": recipe} for name, recipe in recipes.items()}
    assert tuning._best("TC", rows, by_task) == ["base", "short"] and tuning._best(
        "MLC", rows, by_task
    ) == ["base", "wide"]


# --- what diverges


@pytest.mark.slow
def test_a_configuration_that_diverges_is_recorded_and_the_search_goes_on(base):
    wild = QUICK | {"lr": 1e9}
    table = tune(base, (100, 101), {"wild": wild, "quick": QUICK})
    lost = table[table.configuration == "wild"]
    assert (
        lost.role.eq("diverged").all()
        and lost.value.isna().all()
        and set(lost.task) == {"IC100", "IC10"}
    )
    assert (
        table[table.chosen].configuration.isin([FIXED, "quick"]).all()
        and (table.seed == 101).sum() == 4
    )
    with pytest.raises(ValueError, match="every configuration diverged on seed 100"):
        tune(base.model_copy(update={"lr": 1e9}), (100,), {"wild": wild})


def test_a_seed_that_diverged_costs_a_configuration_its_mean():
    rows = pd.DataFrame(
        {
            "configuration": ["a", "a", "b", "b"],
            "metric": "Accuracy",
            "value": [90.0, None, 20.0, 30.0],
        }
    )
    assert tuning._ranked(rows) == ["b", "a"]


# --- options


def test_an_algorithm_without_options_to_try_is_refused(base):
    with pytest.raises(
        ValueError, match="tune: fedmuscle names no options to try; FedMuscle.tried would"
    ):
        tuning.tune_options(base.model_copy(update={"algorithm": "fedmuscle"}), (100,))


@pytest.fixture
def contrast(monkeypatch) -> type:
    """FedRCL with three options to try, of which one ends in nothing finite."""
    kind = algorithms.get("fedrcl")
    monkeypatch.setattr(kind, "tried", ({}, {"weight": 0.0}, {"weight": 1e39}))
    return kind


def test_options_are_compared_by_delta_over_the_same_seeds_local_training(base, contrast):
    """Whatever the profile tuned; without its terms FedRCL is local training."""
    tuned = base.model_copy(update={"algorithm": "fedrcl", "options": {"fedrcl.weight": 0.5}})
    table = tuning.tune_options(tuned, (100,))
    assert [json.loads(options) for options in table.options] == list(contrast.tried)
    assert (
        table.users[2] == "diverged"
        and pd.isna(table.delta_after_alignment[2])
        and not table.chosen[2]
    )
    assert table.delta_after_alignment[1] == 0 and table.chosen.sum() == 1
    on = base.model_copy(update={"evaluate_on": "validation", "seed": 100})
    local = run(on)
    ours = run(on.model_copy(update={"algorithm": "fedrcl", "options": {}}))
    assert table.users[0] == " ".join(f"{value:.1f}" for value in ours.final().value)
    assert table.delta_after_alignment[0] == pytest.approx(
        report.delta([local, ours]).delta[1], abs=0.01
    )


def test_tune_writes_what_was_tried_and_keeps_other_algorithms(
    small_world, contrast, store, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(contrast, "tried", contrast.tried[:2])
    places = [
        f"data_dir={small_world}",
        f"models_path={small_world / 'models'}",
        "users=[5, 6]",
        "rounds=1",
        f"train_samples={json.dumps(FEW)}",
    ]
    line = [
        "tune",
        "--algorithm",
        "fedrcl",
        "--figures",
        str(tmp_path),
        *(part for p in places for part in ("-p", p)),
    ]
    path = tmp_path / "mini/tuning_options.csv"
    assert main(line) == 0
    out = capsys.readouterr().out
    assert f"{path}: written" in out and "[options] of mini.toml: " in out
    first = pd.read_csv(path)
    assert first.seeds.eq(100).all() and len(first) == 2
    first.assign(algorithm="sage").to_csv(path, index=False)
    monkeypatch.setenv("FEDMUSCLE_COMPUTE", "0")  # the runs are stored
    assert main(line) == 0
    assert pd.read_csv(path).algorithm.tolist() == ["sage", "sage", "fedrcl", "fedrcl"]
    assert main([*line, "--confirm", "mini"]) == 2
    assert (
        "error: A run is not stored: fedrcl voc seed 100" in capsys.readouterr().err
    )  # only what mini tuned lacks
    local = [part.replace("fedrcl", "local") for part in line]
    for where in ([*line, "--confirm", "paper"], [*local, "--confirm", "mini"]):
        assert main(where) == 2
        assert "to confirm" in capsys.readouterr().err
    assert main(["tune", "--algorithm", "fedrcl", "-p", "profile=small"]) == 2
    assert "error: -p profile: tune has an option for it" in capsys.readouterr().err
    assert main(["tune", "--algorithm", "probe"]) == 2
    assert "tune: probe names no options to try" in capsys.readouterr().err
