"""A table's runs: the arms asked for, and the controls that stand in every table."""

import pytest
from histories import history

from fedmuscle_lib import report
from fedmuscle_lib.core.notebooks import FIGURES
from fedmuscle_lib.fedmuscle import algorithms, arms
from fedmuscle_lib.fedmuscle.profiles import PROFILES
from fedmuscle_lib.runs import compute

COMMON = {"profile": "mini"}


@pytest.fixture
def asked(monkeypatch):
    """Settings that were asked for; nothing is computed."""
    seen = []

    def run_all(settings):
        seen.extend(settings)
        return [history("local", [40] * 6) for _ in settings]

    monkeypatch.setattr(arms, "run_all", run_all)
    return seen


def test_controls_follow_the_arms_on_every_seed_and_public_set(asked, monkeypatch):
    monkeypatch.setattr(arms, "tuned_tasks", lambda profile: {})
    report.run_arms(COMMON, ["local", "fedmuscle"], [0, 1], ["voc", "coco"])
    first = [
        ("local", "voc"),
        ("fedmuscle", "voc"),
        ("fedmuscle", "coco"),
        ("head_only", "voc"),
        ("self", "voc"),
        ("self", "coco"),
    ]
    first.append(("probe", "voc"))
    assert [(s.algorithm, s.public, s.seed) for s in asked] == [
        (*one, seed) for seed in (0, 1) for one in first
    ]


def test_a_control_that_was_asked_for_runs_once_and_stands_where_it_was_asked_for(asked):
    report.run_arms(COMMON, ["self", "local"], [0], ["voc"], controls=["self"])
    assert [s.algorithm for s in asked] == ["self", "local"]


def test_tuned_arms_are_there_where_the_profile_is_tuned(asked, monkeypatch):
    monkeypatch.setattr(arms, "tuned_tasks", lambda profile: {})
    report.run_arms(
        COMMON, ["local", "fedmuscle, tuned"], [0], ["voc"], controls=[report.TUNED_BASELINE]
    )
    assert [(s.algorithm, s.protocol) for s in asked] == [("local", "fixed")]
    asked.clear()
    recipe = {
        "head_layers": 2,
        "head_hidden": 64,
        "lora_layers": "linear",
        "lora_blocks": "last",
        "lr": 3e-4,
        "epochs": 40,
    }
    for module in ("arms", "settings"):
        monkeypatch.setattr(
            f"fedmuscle_lib.fedmuscle.{module}.tuned_tasks",
            lambda profile: {"MLC": {"recipe": recipe}},
        )
    finished = report.run_arms(
        COMMON, ["local", "fedmuscle, tuned"], [0], ["voc"], controls=[report.TUNED_BASELINE]
    )
    assert [(s.algorithm, s.protocol) for s in asked] == [
        ("local", "fixed"),
        ("fedmuscle", "tuned"),
        ("local", "tuned"),
    ]
    assert asked[2].of(asked[2].members[0], "lr") == 3e-4
    assert [one.setting for one in finished] == ["", "tuned", "tuned"]


def test_an_arm_with_its_authors_values_is_there_where_the_profile_tuned_some(asked, monkeypatch):
    monkeypatch.setitem(PROFILES["mini"], "options", {"fedrcl.weight": 0.1, "sage.mu": 1})
    arms = ["local", "fedrcl", "fedrcl, authors' values", "simclr, authors' values"]
    finished = report.run_arms(COMMON, arms, [0], ["voc"], controls=[])
    kind = algorithms.get("fedrcl")
    assert [s.algorithm for s in asked] == ["local", "fedrcl", "fedrcl"]
    assert [kind.options_of(s).weight for s in asked[1:]] == [0.1, kind.Options().weight]
    assert [one.setting for one in finished] == ["", "", "authors' values"]
    asked.clear()
    given = {"options": {"fedrcl.weight": 0.7}}  # what the user says goes before both
    report.run_arms(COMMON | given, arms, [0], ["voc"], controls=[])
    assert [(s.algorithm, s.options.get("fedrcl.weight")) for s in asked] == [
        ("local", 0.7),
        ("fedrcl", 0.7),
    ]
    with pytest.raises(
        ValueError, match="'fedrcl, tooned': an arm is an algorithm, or '<algorithm>, tuned', or"
    ):
        report.run_arms(COMMON, ["fedrcl, tooned"], [0], ["voc"], controls=[])


def test_whom_a_control_does_not_serve_takes_no_part(asked):
    common = COMMON | {"setup": "setup2_generation", "users": [1, 7, 9, 11], "others": 2}
    report.run_arms(common, ["local"], [0], ["flickr30k"])
    members = {s.algorithm: [user.number for user in s.members] for s in asked}
    assert members == {
        "local": [1, 7, 9, 11],
        "head_only": [1, 7, 9],
        "self": [1, 7, 9, 11],
        "probe": [1, 9],
    }
    asked.clear()
    report.run_arms(
        common | {"users": [11]}, ["local"], [0], ["flickr30k"], controls=["head_only", "probe"]
    )
    assert [s.algorithm for s in asked] == ["local"]


@pytest.fixture
def on_disk(monkeypatch):
    """Runs that are stored: all but the probe's and, of the own copy, those of seed 1."""

    def stored(s):
        lacks = s.algorithm == "probe" or (s.algorithm == "self" and s.seed == 1)
        return None if lacks else history(s.algorithm, [40] * 6, seed=s.seed)

    monkeypatch.setattr(arms, "stored", stored)


def shown(found):
    return [(one.arm, one.settings.seed) for one in found]


def test_where_nothing_is_computed_stored_runs_are_shown(asked, on_disk, monkeypatch):
    monkeypatch.setenv("FEDMUSCLE_COMPUTE", "0")
    best = {"fedmuscle, best τ": {"tau": 0.1, "tau_prime": 0.05}}
    found = report.run_arms(COMMON, ["local"], [0, 1], ["voc"], ["self", "probe"], own=best)
    of_both = [("local", 0), ("self", 0), ("fedmuscle, best τ", 0)]
    assert shown(found) == [*of_both, ("local", 1), ("fedmuscle, best τ", 1)] and not asked
    monkeypatch.setattr(arms, "stored", lambda s: None)
    monkeypatch.setattr(arms, "run_all", compute.refuse_to_compute)
    with pytest.raises(compute.NotStored, match="local voc seed 0"):
        report.run_arms(COMMON, ["local"], [0], ["voc"])


def test_without_seeds_those_of_the_page_are_shown_and_seed_0_is_computed(asked, on_disk):
    folder = FIGURES / "mini" / "controls"
    found = report.run_arms(COMMON, ["local"], [], ["voc"], ["self"], folder=folder)
    assert {seed for _, seed in shown(found)} >= {0, 1, 2} and not asked
    report.run_arms(COMMON, ["local"], [], ["voc"], [], folder=folder.with_name("controls_lr=1"))
    assert [s.seed for s in asked] == [0]
