"""CreamFL's and FedLoGe's systems compute what their versions say."""

import json
from types import ModuleType

import pytest
from fingerprint_guard import assert_same

from fedmuscle_lib.creamfl import fingerprints as creamfl
from fedmuscle_lib.fedloge import fingerprints as fedloge
from fedmuscle_lib.runs.short_runs import fingerprint

FEWEST = {
    creamfl: 8,
    fedloge: 15,
}  # test images of a fold; test samples of a client with few of the tail


def recorded(system: ModuleType) -> dict:
    return json.loads(system.FILE.read_text())


def remedy(system: ModuleType) -> str:
    return f"run `python -m {system.__name__}` and commit what it writes"


@pytest.mark.parametrize("system", FEWEST)
def test_every_shipped_algorithm_has_a_fingerprint(system):
    assert sorted(recorded(system)["fingerprints"]) == sorted(system.runs()), remedy(system)
    assert recorded(system)["modules"] == system.modules(), remedy(system)


@pytest.mark.parametrize(
    "system, name", [(system, name) for system in FEWEST for name in system.runs()]
)
def test_the_arithmetic_is_that_of_its_version(mini_world, system, name):
    where = {"data_dir": mini_world} | (
        {"models_path": mini_world / "models"} if system is creamfl else {}
    )
    now = fingerprint(system.runs(**where)[name])
    assert_same(name, now, recorded(system)["fingerprints"][name], remedy(system), FEWEST[system])
