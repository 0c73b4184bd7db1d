"""Settings refuse what they can't mean, in words that a person can act on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from fedmuscle_lib.fedmuscle import algorithms, profiles
from fedmuscle_lib.fedmuscle.profiles import PLACES, PROFILES, tuned_tasks
from fedmuscle_lib.fedmuscle.settings import BY_TASK, Settings, parse
from fedmuscle_lib.fedmuscle.system import SYSTEM


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"taw": 0.2}, "unknown setting 'taw'; did you mean 'tau'?"),
        ({"local_epoch": 1}, "did you mean 'local_epochs'?"),
        ({"rounds": 0}, "^rounds: .*greater than or equal to 1"),
        ({"lr": -1e-3}, "^lr: .*greater than 0"),
        (
            {"public": "imagenet"},
            (
                "^public: unknown public set 'imagenet'; known: cifar10, cifar100, coco, flickr30k,"
                " noise"
            ),
        ),
        ({"tau": 0}, "^tau = 0.0 for user 1, user 2: must be positive"),
        ({"tau": 0.1}, "^tau_prime = 0.15 exceeds tau = 0.1 for user 1, user 2"),
        ({"tau": ((0.2, 0.3), (0.4, 0.2)), "users": (1, 2), "others": 1}, "tau is not symmetric"),
        ({"backbones": {"ViT-Hug": "huge"}}, "backbones: no user of any setup has 'ViT-Hug'; did"),
        ({"users": ()}, r"users: \[\]; setup1 has"),
        ({"tau": float("nan")}, "tau: .*finite number .got nan."),
        (
            {"tau": ((0.2, 0.2), (0.2, 0.2))},
            r"tau: .* a \(6, 6\) matrix over the members is needed, got one of shape \(2, 2\)",
        ),
        (
            {"tau_prime": ((0.2, 0.0), (0.0, 0.2)), "users": (1, 2), "others": 1},
            "^tau_prime = 0.0 for user 1, user 2: must be positive",
        ),
        ({"others": 6}, "others: M = 6, but a user has only 5 other users in setup1"),
        ({"users": (4, 5, 6)}, "only 2 other users in setup1; --others 2 takes them all"),
        ({"users": (4,)}, "only 0 other users in setup1; name more users"),
        ({"own": {"4": {"foldr": "x"}}}, "unknown setting 'own.4.foldr'"),
        ({"own": {"4": "folder"}}, "^own.4: Input should be a valid dictionary .*got 'folder'"),
        ({"options": {"fedmuscle.tauu": 1}}, "options of fedmuscle: unknown setting 'tauu'"),
        ({"options": {"sage.treshold": 1}}, "of sage: .*'treshold'; did you mean 'threshold'"),
        ({"options": {"sagee.mu": 1}}, "options: no algorithm 'sagee'; did you mean 'sage'"),
        (
            {"batch_size": 64, "public_size": 63},
            "batch_size: B = 64 is larger than the public set of 63",
        ),
        (
            {"public_batch_size": 64, "public_size": 63},
            "public_batch_size: B = 64 is larger than the public set of 63",
        ),
        ({"algorithm": "fedavg"}, "unknown algorithm 'fedavg'; known: .*fedmuscle"),
        (
            {"setup": "setup1_vit", "profile": "paper"},
            "no checkpoint is named for Hybrid ViT-Base, which setup1_vit has; .* one: small",
        ),
        ({"setup": "everyone"}, "unknown setup 'everyone'; known: setup1"),
        ({"profile": "maxi"}, "unknown profile 'maxi'; known: mini, paper, small"),
        ({"users": (1, 7)}, r"users: \[1, 7\]; setup1 has \[1, 2, 3, 4, 5, 6\], of whom each"),
        (
            {"train_samples": {"IC1O": 40}},
            r"train_samples: nobody in setup1 has the task 'IC1O'; did you mean 'IC10'\?",
        ),
        ({"lr": {"MLC": 3e-3}}, "lr: values by task need a 'default'"),
        ({"lr": {"default": 1e-3, "MCL": 3e-3}}, r"lr: no task 'MCL'; did you mean 'MLC'\?"),
        ({"lr": {"default": 1e-3, "MLC": 0}}, "^lr.MLC: .*greater than 0 .got 0"),
        (
            {"lora_blocks": {"default": "all", "TC": "first"}},
            "^lora_blocks.TC: .*'all', 'last' or 'none' .got 'first'",
        ),
        (
            {"profile": "mini", "protocol": "paper"},
            "^protocol: the profile 'mini' has no other recipe of the paper than its fixed one",
        ),
        (
            {"profile": "paper", "protocol": "tuned"},
            "^protocol: the profile 'paper' has no tuned recipes; notebooks/tuning",
        ),
    ],
    ids=str,
)
def test_a_refusal_says_what_to_change(given, message):
    with pytest.raises(ValueError, match=message):
        parse(given)


@pytest.mark.parametrize("profile", PROFILES)
def test_a_profile_fills_what_is_not_given(profile):
    values = {"train_samples": {}} | profiles.numbers_of(profile, "setup2")
    settings = Settings(profile=profile, setup="setup2")  # whose tasks the profiles name
    assert {name: getattr(settings, name) for name in values} == values
    for name, field in Settings.model_fields.items():
        if name not in {*values, "profile", "setup"}:
            assert getattr(settings, name) == field.get_default(call_default_factory=True), name


def test_defaults_are_the_papers():
    """Section 6.1, read off the fields and not off an instance, which a profile may have
    changed.
    """
    said = {
        "batch_size": 32, "others": 3, "local_epochs": 1, "rounds": 150, "cl_epochs": 1, "tau": 0.2, "tau_prime": 0.15,
        "proj_dim": 256, "rank": 16, "lr": 1e-3, "public_size": 5000,
    }  # fmt: skip
    assert {name: Settings.model_fields[name].default for name in said} == said


def test_settings_are_values():
    settings = Settings(tau=0.3)
    with pytest.raises(ValidationError, match="frozen"):
        settings.tau = 0.2
    assert settings == Settings(tau=0.3) != Settings()
    assert (
        Settings(**settings.model_dump())
        == Settings.model_validate_json(settings.model_dump_json())
        == settings
    )


def test_training_sets_are_appendix_gs_but_for_the_tasks_that_are_named():
    settings = parse({"train_samples": {"IC100": 40, "IC10": 50}})
    assert [user.train_samples for user in settings.members] == [200, 200, 200, 40, 40, 50]
    assert settings.own_train_samples == {"IC100": 40}
    assert Settings(train_samples={"IC100": 40}, users=(1, 6), others=1).own_train_samples == {}


def test_a_profiles_training_sets_are_for_the_setups_that_have_the_task(monkeypatch):
    monkeypatch.setitem(PROFILES["mini"], "train_samples", {"IC10": 20, "SS": 30})
    assert Settings().train_samples == {"IC10": 20}
    assert parse({"train_samples": {"MLC": 90}}).train_samples == {"IC10": 20, "MLC": 90}
    assert parse({"train_samples": {"IC10": 50}}).own_train_samples == {}
    assert Settings(**Settings().model_dump()) == Settings()


def test_a_profile_may_have_numbers_for_one_setup(monkeypatch):
    monkeypatch.setitem(profiles.OF_SETUPS, "mini", {"setup2": {"rounds": 7}})
    assert (
        parse({"setup": "setup2"}).rounds == 7
        and parse({"setup": "setup2", "rounds": 3}).rounds == 3
    )
    assert parse({"setup": "setup1"}).rounds == PROFILES["mini"]["rounds"]


def test_given_options_join_the_profiles_and_win(monkeypatch):
    monkeypatch.setitem(PROFILES["mini"], "options", {"simclr.tau": 0.1, "fedrcl.weight": 0.3})
    assert parse({"options": {"simclr.tau": 0.7, "fedhenn.samples": 8}}).options == {
        "simclr.tau": 0.7,
        "fedrcl.weight": 0.3,
        "fedhenn.samples": 8,
    }
    assert Settings(**Settings().model_dump()) == Settings()
    assert parse({"profile": "paper"}).options == {}
    monkeypatch.setitem(PROFILES["mini"], "options", {"simclr.taw": 0.1})
    with pytest.raises(ValueError, match="options of simclr: unknown setting 'taw'"):
        parse({})


def test_a_profiles_options_move_the_runs_of_their_algorithm_alone(monkeypatch):
    def asked_of(name):
        return SYSTEM.key(Settings(algorithm=name))

    before = {name: asked_of(name) for name in algorithms.names()}
    monkeypatch.setitem(
        PROFILES["mini"], "options", PROFILES["mini"].get("options", {}) | {"simclr.tau": 0.1}
    )
    assert [name for name in before if asked_of(name) != before[name]] == ["simclr"]


def test_what_an_algorithm_ignores_is_not_checked():
    assert Settings(algorithm="self", users=(6,)).others == 3
    assert Settings(algorithm="local", batch_size=300, public_size=200).public_size < 300


# --- settings by task


def epochs(settings: Settings, number: int) -> list[int]:
    """Of one user, round by round."""
    (user,) = (user for user in settings.members if user.number == number)
    return [settings.epochs_in(round, user) for round in range(settings.rounds)]


def test_a_setting_is_one_value_or_one_by_task():
    settings = parse(
        {"lr": {"default": 1e-3, "MLC": 3e-3, "TC": 1}, "head_hidden": 64}
    )  # nobody here has TC
    assert [settings.of(user, "lr") for user in settings.members] == [3e-3] * 3 + [1e-3] * 3
    assert [settings.of(user, "head_hidden") for user in settings.members] == [64] * 6


@pytest.mark.parametrize(
    ("total", "rounds"), [(40, 40), (100, 12), (7, 20), (0, 3), (150, 1), (61, 20)]
)
def test_a_runs_epochs_are_spread_evenly_over_its_rounds(total, rounds):
    spread = epochs(Settings(epochs=total, rounds=rounds), 1)
    assert sum(spread) == total and max(spread) - min(spread) <= 1
    assert spread == [(r + 1) * total // rounds - r * total // rounds for r in range(rounds)]


def test_without_a_total_every_round_has_the_local_epochs():
    by_task = Settings(rounds=4, local_epochs=3, epochs={"default": None, "IC10": 6})
    assert epochs(by_task, 1) == [3, 3, 3, 3] and epochs(by_task, 6) == [1, 2, 1, 2]


# --- protocols


@pytest.fixture
def tuned(tmp_path, monkeypatch) -> Path:
    """The tuned recipe of one task of mini."""
    monkeypatch.setattr(profiles, "FOLDER", tmp_path)
    monkeypatch.setitem(PROFILES["mini"], "lora_blocks", {"default": "all", "TC": "last"})
    recipe = {
        "head_layers": 1,
        "head_hidden": 64,
        "lora_layers": "linear",
        "lora_blocks": "none",
        "lr": 3e-3,
        "epochs": 100,
    }
    path = tmp_path / "mini_tuned.json"
    path.write_text(json.dumps({"MLC": {"recipe": recipe, "date": "2026-11-22"}}))
    return path


def test_the_papers_protocol_is_another_recipe_for_the_same_users():
    fixed, paper = (
        parse({"profile": "small", "setup": "setup1_vit", "protocol": name})
        for name in ("fixed", "paper")
    )
    assert fixed.members == paper.members
    assert (
        paper.lora_blocks == "all" and paper.epochs_after(paper.rounds, paper.members[0]) == 150
    )  # Section 6.1: E = 1, R = 150
    assert (
        parse(
            {"profile": "small", "setup": "setup1_vit", "protocol": "paper", "lora_blocks": "last"}
        ).lora_blocks
        == "last"
    )


def test_given_settings_go_before_the_protocol_and_this_before_the_profile(tuned):
    assert tuned_tasks("mini") and not tuned_tasks("small")
    first, *_, last = Settings(protocol="tuned").members
    settings = Settings(protocol="tuned", head_hidden=32)
    assert settings.of(first, "lr") == 3e-3 and settings.of(last, "lr") == Settings().lr
    assert settings.lora_blocks == {
        "default": "all",
        "TC": "last",
        "MLC": "none",
    }  # the profile's tasks, and the tuned one
    assert settings.head_hidden == 32 and settings.rounds == Settings().rounds
    assert Settings() == Settings(protocol="fixed") and Settings().head_layers == 2
    assert Settings(**settings.model_dump()) == settings


def test_tuned_epochs_hold_unless_epochs_are_given(tuned):
    whole = Settings(protocol="tuned")
    assert (
        sum(epochs(whole, 1)) == 100 and sum(epochs(whole, 6)) == whole.rounds * whole.local_epochs
    )
    assert set(epochs(Settings(protocol="tuned", local_epochs=2), 1)) == {2}
    assert sum(epochs(Settings(protocol="tuned", epochs=30), 1)) == 30


def test_damaged_recipes_are_refused_with_the_files_name_or_the_settings(tuned):
    tuned.write_text(tuned.read_text().replace("0.003", "-1"))
    with pytest.raises(ValueError, match="^lr.MLC: .*greater than 0 .got -1"):
        parse({"protocol": "tuned"})
    tuned.write_text(tuned.read_text()[:-9])
    with pytest.raises(ValueError, match="^[^\n]*mini_tuned.json: not JSON [^\n]*$"):
        parse({"protocol": "tuned"})
    assert parse({"protocol": "fixed"}) == Settings()


@pytest.mark.parametrize("profile", PLACES)
def test_the_places_of_the_map_differ_in_a_recipe_or_the_users(profile):
    places = [parse({"profile": profile, **own}) for own in PLACES[profile].values()]
    names = (*BY_TASK, "setup")
    recipes = [[getattr(place, name) for name in names] for place in places]
    assert all(recipes.count(recipe) == 1 for recipe in recipes)
