"""FedMuscle's system computes what its versions say."""

import json

import pytest
from fingerprint_guard import assert_same

from fedmuscle_lib.fedmuscle import fingerprints

RECORDED = json.loads(fingerprints.FILE.read_text())
NAMES = list(fingerprints.runs())
WHOLE = {"fedmuscle", "probe", "tasks"}  # whose metrics are computed, too, in the gate; the probe has no loss
# Whose steps are another's, of other members; whom the directed listen to is tested in test_directed.py.
LIKE_OTHERS = {"directed", "frozen_peers", "head_only", "local", "own_teacher", "self", "shuffled"}
FEWEST = 200  # evaluation samples of a user in the embedded world
REMEDY = "run `python -m fedmuscle_lib.fedmuscle.fingerprints` and commit what it writes"


def test_everything_shipped_has_a_fingerprint(mini_world):
    assert sorted(RECORDED["fingerprints"]) == sorted(NAMES), REMEDY
    assert RECORDED["modules"] == fingerprints.modules(data_dir=mini_world, models_path=mini_world / "models"), REMEDY


@pytest.mark.parametrize("name", [name if name in WHOLE else pytest.param(name, marks=pytest.mark.slow) for name in NAMES])
def test_the_arithmetic_is_that_of_its_version(mini_world, name):
    now = fingerprints.fingerprint(fingerprints.runs(data_dir=mini_world, models_path=mini_world / "models")[name])
    assert_same(name, now, RECORDED["fingerprints"][name], REMEDY, FEWEST)


@pytest.mark.parametrize("name", sorted({*NAMES} - WHOLE - LIKE_OTHERS))
def test_losses_and_bytes_are_those_of_their_version(small_world, name):
    """Of training and messages, which do not see that there are few samples to evaluate on."""
    recorded = RECORDED["fingerprints"][name]
    now = fingerprints.fingerprint(fingerprints.runs(data_dir=small_world, models_path=small_world / "models")[name])
    assert_same(name, now | {"metrics": recorded["metrics"]}, recorded, REMEDY, FEWEST)
