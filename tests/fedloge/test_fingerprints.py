"""FedLoGe's system computes what its versions say."""

import json

import pytest
from fingerprint_guard import assert_same

from fedmuscle_lib.fedloge import fingerprints
from fedmuscle_lib.runs.short_runs import fingerprint

RECORDED = json.loads(fingerprints.FILE.read_text())
NAMES = list(fingerprints.runs())
FEWEST = 15  # test samples behind the coarsest value: some clients have few of the tail
REMEDY = "run `python -m fedmuscle_lib.fedloge.fingerprints` and commit what it writes"


def test_every_shipped_method_has_a_fingerprint():
    assert sorted(RECORDED["fingerprints"]) == sorted(NAMES), REMEDY
    assert RECORDED["modules"] == fingerprints.modules(), REMEDY


@pytest.mark.parametrize("name", NAMES)
def test_the_arithmetic_is_that_of_its_version(mini_world, name):
    now = fingerprint(fingerprints.runs(data_dir=mini_world)[name])
    assert_same(name, now, RECORDED["fingerprints"][name], REMEDY, FEWEST)
