"""FedMuscle's system computes what its versions say."""

import json

import pytest
from fingerprint_guard import assert_same

from fedmuscle_lib.fedmuscle import fingerprints
from fedmuscle_lib.fedmuscle.client import Client

RECORDED = json.loads(fingerprints.FILE.read_text())
NAMES = list(fingerprints.runs())
WHOLE = {"probe", "tasks"}  # whose metrics are computed, too, in the gate; the probe has no loss
# Whose steps are another's, of other members; whom the directed listen to is tested in
# test_directed.py.
LIKE_OTHERS = {
    "anchored",
    "directed",
    "frozen_peers",
    "head_only",
    "local",
    "own_teacher",
    "self",
    "shuffled",
}
FEWEST = 200  # evaluation samples of a user in the embedded world
REMEDY = "run `python -m fedmuscle_lib.fedmuscle.fingerprints` and commit what it writes"


@pytest.fixture
def runs(mini_world):
    return fingerprints.runs(data_dir=mini_world, models_path=mini_world / "models")


def test_everything_shipped_has_a_fingerprint(mini_world):
    assert sorted(RECORDED["fingerprints"]) == sorted(NAMES), REMEDY
    assert RECORDED["modules"] == fingerprints.modules(
        data_dir=mini_world, models_path=mini_world / "models"
    ), REMEDY


@pytest.mark.parametrize(
    "name",
    [name if name in WHOLE else pytest.param(name, marks=pytest.mark.slow) for name in NAMES],
)
def test_the_arithmetic_is_that_of_its_version(runs, name):
    assert_same(
        name, fingerprints.fingerprint(runs[name]), RECORDED["fingerprints"][name], REMEDY, FEWEST
    )


@pytest.mark.parametrize("name", sorted({*NAMES} - WHOLE - LIKE_OTHERS))
def test_losses_and_bytes_are_those_of_their_version(runs, name, monkeypatch):
    """Of training and messages, on which no metric has an influence."""
    monkeypatch.setattr(Client, "evaluate", lambda self: 0.0)
    recorded = RECORDED["fingerprints"][name]
    now = fingerprints.fingerprint(runs[name])
    assert_same(name, now | {"metrics": recorded["metrics"]}, recorded, REMEDY, FEWEST)
