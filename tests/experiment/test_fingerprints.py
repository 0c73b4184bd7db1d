"""The guard of the arithmetic's versions: short runs give what was recorded, or a version was raised.

On the recorded kind of processor they are equal to the bit. On another one float32 rounds otherwise: losses agree to a thousandth, and a
metric, which counts samples, to what three of them make. docs/results.md says what this does not notice.
"""

from __future__ import annotations

import json

import pytest

from fedmuscle_lib.experiment import fingerprints
from fedmuscle_lib.versions import FINGERPRINTS

RECORDED = json.loads(FINGERPRINTS.read_text())
NAMES = list(fingerprints.runs())
FEWEST = 200  # evaluation samples of a user in the embedded world
REMEDY = "run `python -m fedmuscle_lib.experiment.fingerprints` and commit what it writes"


def test_everything_shipped_has_a_fingerprint(mini_world):
    assert sorted(RECORDED["fingerprints"]) == sorted(NAMES), REMEDY
    assert RECORDED["modules"] == fingerprints.modules(data_dir=mini_world, models_path=mini_world / "models"), REMEDY


@pytest.mark.parametrize("name", NAMES)
def test_the_arithmetic_is_that_of_its_version(mini_world, name):
    recorded = RECORDED["fingerprints"][name]
    now = fingerprints.fingerprint(fingerprints.runs(data_dir=mini_world, models_path=mini_world / "models")[name])
    assert now["versions"] == recorded["versions"], f"a version was raised: {REMEDY}"
    raise_it = f"{name}: a number moved; raise the version of what computes it (fedmuscle_lib/versions.py), then {REMEDY}"
    assert now["bytes"] == recorded["bytes"], raise_it
    if now["processor"] == recorded["processor"]:
        assert (now["losses"], now["metrics"]) == (recorded["losses"], recorded["metrics"]), raise_it
        return
    for ours, theirs in zip(now["losses"], recorded["losses"], strict=True):
        assert ours == pytest.approx(theirs, rel=1e-3), raise_it
    assert now["metrics"] == pytest.approx(recorded["metrics"], rel=5e-3, abs=100 * 3 / FEWEST), raise_it
