"""CreamFL's system computes what its versions say."""

import json

import pytest
from fingerprint_guard import assert_same

from fedmuscle_lib.creamfl import fingerprints
from fedmuscle_lib.runs.short_runs import fingerprint

RECORDED = json.loads(fingerprints.FILE.read_text())
NAMES = list(fingerprints.runs())
FEWEST = 8  # test images of a fold
REMEDY = "run `python -m fedmuscle_lib.creamfl.fingerprints` and commit what it writes"


def test_every_shipped_algorithm_has_a_fingerprint():
    assert sorted(RECORDED["fingerprints"]) == sorted(NAMES), REMEDY
    assert RECORDED["modules"] == fingerprints.modules(), REMEDY


@pytest.mark.parametrize("name", NAMES)
def test_the_arithmetic_is_that_of_its_version(mini_world, name):
    where = {"data_dir": mini_world, "models_path": mini_world / "models"}
    now = fingerprint(fingerprints.runs(**where)[name])
    assert_same(name, now, RECORDED["fingerprints"][name], REMEDY, FEWEST)
