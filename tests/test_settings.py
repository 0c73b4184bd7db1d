"""Settings refuse what they can't mean, in words that a person can act on."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from fedmuscle_lib.settings import PROFILES, Settings, parse


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"taw": 0.2}, "unknown setting 'taw'; did you mean 'tau'?"),
        ({"local_epoch": 1}, "did you mean 'local_epochs'?"),
        ({"zzz": 1}, "unknown setting 'zzz'$"),
        ({"rounds": "many"}, "^rounds: .*integer.*'many'"),
        ({"rounds": 0}, "^rounds: .*greater than or equal to 1"),
        ({"lr": -1e-3}, "^lr: .*greater than 0"),
        ({"public": "imagenet"}, "^public: unknown public set 'imagenet'; known: cifar100, coco, flickr30k, voc"),
        ({"tau": 0}, "tau: a temperature is positive, got 0"),
        ({"tau": 0.1}, "tau_prime: 0.15 is larger than tau = 0.1"),
        ({"tau_prime": -0.1}, "tau_prime: a temperature is positive, got -0.1"),
        ({"tau": ((0.2, 0.3), (0.4, 0.2)), "users": (1, 2), "others": 1}, "tau: .*symmetric"),
        ({"rounds": True}, "rounds: got True, and no setting is a truth value"),
        ({"backbones": {"ViT-Huge": "huge"}, "profile": "mini", "users": ()}, "users: at least one of"),
        ({"tau": float("nan")}, "tau: .*finite number .got nan."),
        ({"tau": ((0.2, 0.2), (0.2, 0.2))}, "tau: .*users x users, here 6 x 6"),
        ({"tau_prime": ((0.2, 0.0), (0.2, 0.2)), "users": (1, 2), "others": 1}, "tau_prime: a temperature is positive, got 0"),
        ({"others": 6}, "others: M = 6, but a user has only 5 other users in setup1"),
        ({"others": 2, "users": (1, 2)}, "others: M = 2, but a user has only 1 other users"),
        ({"batch_size": 64, "public_size": 63}, "batch_size: B = 64 is larger than the public set of 63"),
        ({"public_batch_size": 64, "public_size": 63}, "public_batch_size: B = 64 is larger than the public set of 63"),
        ({"algorithm": "fedavg"}, "unknown algorithm 'fedavg'; known: .*fedmuscle"),
        (
            {"setup": "setup1_vit", "profile": "paper"},
            "no checkpoint is named for Hybrid ViT-Base, which setup1_vit has; the profile small",
        ),
        ({"setup": "setup1_unequal", "profile": "paper"}, "named for weak ViT-Small, .*; the profile mini or small names one"),
        ({"setup": "setup99"}, "unknown setup 'setup99'; known: setup1"),
        ({"setup": ["setup1"]}, "^setup: .*string"),
        ({"profile": "maxi"}, "unknown profile 'maxi'; known: mini, paper, small"),
        ({"users": (1, 7)}, "users: setup1 has no user 7; it has"),
        ({"device": 3}, "^device: .*string"),
        ({"train_samples": {"IC1O": 40}}, r"train_samples: nobody in setup1 has the task 'IC1O'; did you mean 'IC10'\?"),
        ({"train_samples": {"TC": 40}}, "train_samples: nobody in setup1 has the task 'TC'; known: IC10, IC100, MLC"),
        ({"train_samples": {"MLC": 0}}, "train_samples: a user with MLC has at least one, got 0"),
        ({"train_samples": {"MLC": True}}, "^train_samples: .*integer .got True"),
        ({"train_samples": 40}, "^train_samples: .*dictionary .got 40"),
    ],
    ids=str,
)
def test_a_refusal_says_what_to_change(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse(given)


def test_every_fault_is_told_at_once() -> None:
    with pytest.raises(ValueError, match=r"(?s)rounds.*; .*proj_dims.*did you mean 'proj_dim'"):
        parse({"rounds": -1, "proj_dims": 8})


@pytest.mark.parametrize("profile", PROFILES)
def test_a_profile_fills_what_is_not_given(profile: str) -> None:
    values = {"train_samples": {}} | PROFILES[profile]
    settings = Settings(profile=profile, setup="setup2")  # whose tasks the profiles name
    assert {name: getattr(settings, name) for name in values} == values
    for name, field in Settings.model_fields.items():
        if name not in {*values, "profile", "setup"}:
            assert getattr(settings, name) == field.get_default(call_default_factory=True), name


@pytest.mark.parametrize("profile", PROFILES)
def test_what_is_given_wins_over_the_profile(profile: str) -> None:
    given = {"rounds": 7, "public_size": 41, "batch_size": 9}
    settings = parse({"profile": profile} | given)
    assert {name: getattr(settings, name) for name in given} == given
    assert settings.local_epochs == PROFILES[profile].get("local_epochs", Settings.model_fields["local_epochs"].default)


def test_defaults_are_the_papers() -> None:
    """Section 6.1, read off the fields and not off an instance, which a profile may have changed."""
    said = {
        "batch_size": 32, "others": 3, "local_epochs": 1, "rounds": 150, "cl_epochs": 1, "tau": 0.2, "tau_prime": 0.15,
        "proj_dim": 256, "rank": 16, "lr": 1e-3, "public_size": 5000,
    }  # fmt: skip
    assert {name: Settings.model_fields[name].default for name in said} == said


def test_settings_are_values() -> None:
    settings = Settings(tau=0.3)
    with pytest.raises(ValidationError, match="frozen"):
        settings.tau = 0.2
    assert settings == Settings(tau=0.3) != Settings()
    assert Settings(**settings.model_dump()) == Settings.model_validate_json(settings.model_dump_json()) == settings


def test_members_keep_the_setups_order() -> None:
    assert [user.number for user in Settings().members] == [1, 2, 3, 4, 5, 6]
    assert [user.number for user in Settings(users=(6, 1), others=1).members] == [1, 6]


def test_training_sets_are_appendix_gs_but_for_the_tasks_that_are_named() -> None:
    settings = parse({"train_samples": {"IC100": 40, "IC10": 50}})
    assert [user.train_samples for user in settings.members] == [200, 200, 200, 40, 40, 50]
    assert settings.own_train_samples == {"IC100": 40}
    assert Settings(train_samples={"IC100": 40}, users=(1, 6), others=1).own_train_samples == {}


def test_a_profiles_training_sets_are_for_the_setups_that_have_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PROFILES["mini"], "train_samples", {"IC10": 20, "SS": 30})
    assert Settings().train_samples == {"IC10": 20}
    assert parse({"train_samples": {"MLC": 90}}).train_samples == {"IC10": 20, "MLC": 90}
    assert parse({"train_samples": {"IC10": 50}}).own_train_samples == {}
    assert Settings(**Settings().model_dump()) == Settings()


def test_temperatures_may_be_a_matrix_over_users() -> None:
    tau = ((0.2, 0.3), (0.3, 0.2))
    assert Settings(users=(1, 2), others=1, tau=tau).tau == tau


def test_a_given_backbone_joins_the_profiles() -> None:
    backbones = Settings(backbones={"ViT-Tiny": "mine"}).backbones
    assert backbones["ViT-Tiny"] == "mine" and backbones["ViT-Base"] == Settings().backbones["ViT-Base"]


def test_what_an_algorithm_ignores_is_not_checked() -> None:
    assert Settings(algorithm="self", users=(6,)).others == 3
    assert Settings(algorithm="local", batch_size=300).public_size < 300


def test_only_batches_of_public_data_have_to_fit_into_the_public_set() -> None:
    assert Settings(batch_size=300, public_batch_size=32).public_batch == 32 < Settings(batch_size=64).public_batch == 64
