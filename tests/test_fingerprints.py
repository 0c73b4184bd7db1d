"""The guard of versions: short runs give what was recorded, or a version was raised.

On the recorded kind of processor they are equal to the bit. On another one float32 rounds
otherwise: losses agree to a thousandth, and a metric, which counts samples, to what three of them
make. docs/results.md says what this does not notice.
"""

import json
import math

import fingerprints
import pytest
from fingerprints import FAMILIES, RECORDED

from fedmuscle_lib.core.versions import guarded
from fedmuscle_lib.fedmuscle.client import Client

KNOWN = {
    system: json.loads((RECORDED / f"{system}.json").read_text())["fingerprints"]
    for system in FAMILIES
}
FEWEST = {"fedmuscle": 200, "fedloge": 15, "creamfl": 8}  # evaluation samples behind a metric
WHOLE = {"probe", "tasks"}  # of FedMuscle, whose metrics the gate computes too
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
REMEDY = "run `python tests/fingerprints.py` and commit what it writes"


@pytest.fixture
def places(mini_world):
    return {"data_dir": mini_world, "models_path": mini_world / "models"}


def runs(system, places):
    own = {"data_dir": places["data_dir"]} if system == "fedloge" else places
    return fingerprints.runs(system, **own)


def numbers(rows):
    """All losses of a run, with nan where there is none."""
    return [math.nan if value is None else value for row in rows for value in row]


def assert_same(system, name, now):
    known = KNOWN[system][name]
    assert now["versions"] == known["versions"], f"a version was raised: {REMEDY}"
    assert now["rounding"] == known["rounding"], f"ROUNDING was raised: {REMEDY}"
    raise_it = (
        f"{name}: a number moved; raise the version of what computes it, or ROUNDING"
        f" (fedmuscle_lib/core/versions.py), then {REMEDY}"
    )
    assert now["bytes"] == known["bytes"], raise_it
    if now["processor"] == known["processor"]:
        assert (now["losses"], now["metrics"]) == (known["losses"], known["metrics"]), raise_it
        return
    losses = pytest.approx(numbers(known["losses"]), rel=1e-3, nan_ok=True)
    assert numbers(now["losses"]) == losses, raise_it
    a_few = {"rel": 5e-3, "abs": 100 * 3 / FEWEST[system]}
    assert now["metrics"] == pytest.approx(known["metrics"], **a_few), raise_it


def test_everything_shipped_has_a_fingerprint(places):
    for system in FAMILIES:
        assert sorted(KNOWN[system]) == sorted(runs(system, places)), REMEDY
    assert sorted(guarded()) == fingerprints.modules(**places), REMEDY


@pytest.mark.parametrize(
    ("system", "name"),
    [
        pytest.param(
            system,
            name,
            marks=[pytest.mark.slow] if system == "fedmuscle" and name not in WHOLE else [],
        )
        for system in FAMILIES
        for name in KNOWN[system]
    ],
)
def test_the_arithmetic_is_that_of_its_version(places, system, name):
    assert_same(system, name, fingerprints.fingerprint(runs(system, places)[name]))


@pytest.mark.parametrize("name", sorted({*KNOWN["fedmuscle"]} - WHOLE - LIKE_OTHERS))
def test_losses_and_bytes_are_those_of_their_version(places, name, monkeypatch):
    """Of training and messages, on which no metric has an influence."""
    monkeypatch.setattr(Client, "evaluate", lambda self: 0.0)
    now = fingerprints.fingerprint(runs("fedmuscle", places)[name])
    assert_same("fedmuscle", name, now | {"metrics": KNOWN["fedmuscle"][name]["metrics"]})
