"""The map of Delta: which runs it asks for, and what becomes of them."""

import pytest
from histories import history

from fedmuscle_lib import report
from fedmuscle_lib.fedmuscle import ablations as module
from fedmuscle_lib.fedmuscle import arms
from fedmuscle_lib.fedmuscle.profiles import PLACES
from fedmuscle_lib.fedmuscle.settings import BY_TASK, parse

PLACES_HERE = {
    "as it is": {},
    "wide": {"head_hidden": 999, "setup": "setup1_unequal"},
    "long": {"epochs": 44, "lr": 5e-3},
}
STEPS = [160, 320, 80]
VALUES = {
    "local": 40,
    "fedmuscle": 46,
    "self": 44,
    "anchored": 47,
    "frozen_peers": 45,
    "head_only": 42,
}
COMMON = {"profile": "mini", "rounds": 20, "public_size": 256}


def answering(patch):
    """Have runs answered, and return the settings that are asked for; an algorithm ends with its
    value, whatever the settings.
    """
    seen = []

    def run_all(settings):
        seen.extend(now := list(settings))
        facts = [{"address": str(hash(one.model_dump_json()))} for one in now]
        values = [[VALUES[one.algorithm] + (one.protocol == "tuned") + one.seed] * 6 for one in now]
        names = ("rounds", "epochs", "lr", "head_hidden", "public_size", "setup", "protocol")
        given = [{name: getattr(one, name) for name in names} for one in now]
        runs = zip(now, values, facts, given, strict=True)
        return [
            history(one.algorithm, value, seed=one.seed, facts=fact, **own)
            for one, value, fact, own in runs
        ]

    patch.setattr("fedmuscle_lib.fedmuscle.arms.run_all", run_all)
    patch.setattr(arms, "tuned_protocol", lambda profile: False)
    return seen


@pytest.fixture
def asked(monkeypatch):
    """Settings that were asked for."""
    return answering(monkeypatch)


@pytest.fixture
def tuned(asked, monkeypatch):
    """The same where the profile has a tuned recipe, whose head is 7 wide."""
    monkeypatch.setattr(arms, "tuned_protocol", lambda profile: True)
    recipe = {
        "head_layers": 2,
        "head_hidden": 7,
        "lora_layers": "linear",
        "lora_blocks": "all",
        "lr": 2e-3,
        "epochs": 40,
    }
    recipes = dict.fromkeys(("MLC", "IC100", "IC10"), recipe)
    monkeypatch.setattr("fedmuscle_lib.fedmuscle.settings.tuned_recipes", lambda profile: recipes)
    return asked


def different(one, other):
    return {name for name in type(one).model_fields if getattr(one, name) != getattr(other, name)}


def test_steps_change_the_size_of_the_public_set_and_nothing_else(asked):
    points = report.run_map(COMMON, {"as it is": {}}, STEPS, [0], "voc")
    assert [point.varied["steps"] for point in points] == [
        160,
        320,
        80,
    ]  # R 20 and 256 pictures make 160
    for point in points:
        for run in point.histories:
            assert module.alignment_steps(run.settings) == point.varied["steps"]
    runs = {(s.algorithm, s.public_size): s for s in asked}
    for (name, size), one in runs.items():
        assert different(one, runs[name, 256]) <= {"public_size"} and size in (128, 256, 512)


def test_the_first_seed_is_run_everywhere_and_all_at_the_first_place_and_in_the_opposite_corner(
    asked,
):
    points = report.run_map(COMMON, PLACES_HERE, STEPS, [3, 1, 2], "voc")
    seeds = {
        tuple(point.varied.values()): [run.settings.seed for run in point.histories]
        for point in points
    }
    assert len(seeds) == 9
    everywhere = {key: sorted(set(own)) for key, own in seeds.items() if len(set(own)) > 1}
    assert everywhere == {**{("as it is", n): [1, 2, 3] for n in STEPS}, ("long", 320): [1, 2, 3]}
    assert all(set(own) == {3} for key, own in seeds.items() if key not in everywhere)
    assert points[0].varied == {"place": "as it is", "steps": 160}


def test_without_numbers_of_steps_every_place_has_its_own(asked):
    points = report.run_map(COMMON, {"a": {}, "b": {"rounds": 10}}, [], [0], "voc")
    assert [tuple(point.varied.values()) for point in points] == [("a", 160), ("b", 80)]


def test_the_tuned_baseline_has_no_places_recipe(tuned):
    points = report.run_map(COMMON, PLACES_HERE, [], [0], "voc")
    baselines = {
        point.varied["place"]: [run for run in point.histories if run.arm == report.TUNED_BASELINE]
        for point in points
    }
    assert [len(runs) for runs in baselines.values()] == [1, 1, 1]
    settings = {s.setup: s for s in tuned if s.protocol == "tuned"}
    assert set(settings) == {"setup1", "setup1_unequal"}
    for s in [s for s in tuned if s.protocol == "tuned"]:
        assert (
            s.head_hidden["MLC"] == 7
            and s.lr["MLC"] == 2e-3
            and different(s, settings["setup1"]) <= {"setup"}
        )
    wide = next(s for s in tuned if s.head_hidden == 999)
    assert wide.protocol == "fixed" and wide.setup == "setup1_unequal"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"steps": [170]}, "steps: 170 alignment steps can't be shared among 20 rounds"),
        ({"steps": [0]}, "steps: 0 alignment steps"),
        (
            {"places": {"a": {"setup": "setup2_generation"}}},
            "head_only does not serve every user of setup2_generation",
        ),
        ({"places": {"a": {"heads": 3}}}, "unknown setting 'heads'"),
        ({"places": {"a": {"rounds": 3}, "b": {"rounds": 5}}}, "rounds: each point has its own"),
    ],
)
def test_what_no_map_can_have_is_refused_before_anything_runs(asked, given, message):
    with pytest.raises(ValueError, match=message):
        report.run_map(
            **({"common": COMMON, "places": {}, "steps": [], "seeds": [0], "public": "voc"} | given)
        )
    assert not asked


@pytest.mark.parametrize("profile", PLACES)
def test_the_places_of_a_profile_are_settings_that_differ(profile):
    places = [parse({"profile": profile, **own}) for own in PLACES[profile].values()]
    for k, one in enumerate(places):
        assert all(different(one, other) & {*BY_TASK, "setup"} for other in places[:k])
