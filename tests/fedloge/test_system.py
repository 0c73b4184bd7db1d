"""A run's address holds what a run of this system can see, and nothing else."""

import pytest

from fedmuscle_lib.fedloge import methods
from fedmuscle_lib.fedloge.settings import Settings
from fedmuscle_lib.runs.address import address_of


@pytest.fixture
def address(mini_world):
    return lambda **given: address_of(Settings(**{"data_dir": mini_world} | given))


def test_each_method_has_runs_of_its_own(address):
    assert len({address(algorithm=name) for name in methods.names()}) == len(methods.names())


@pytest.mark.parametrize(
    "change",
    [
        {"imbalance": 0.02},
        {"alpha": 1},
        {"seed": 1},
        {"clients": 9},
        {"lr": 0.1},
        {"threads": 2},
        {"options": {"fedloge.norm": 0.2}},
    ],
)
def test_what_changes_a_number_changes_the_address(address, change):
    assert address(**change) != address()


def test_another_methods_option_and_the_name_of_a_profile_change_nothing(address, mini_world):
    assert address(options={"fedprox.mu": 0.5}) == address()
    numbers = Settings(data_dir=mini_world).model_dump()
    assert address(**numbers | {"profile": "paper"}) == address()


def test_other_pictures_are_another_run(address, tmp_path):
    folder = tmp_path / "FedLT/glyphs"
    folder.mkdir(parents=True)
    (folder / "train.npz").write_bytes(b"one")
    first = address(data_dir=tmp_path)
    (folder / "train.npz").write_bytes(b"another")
    assert address(data_dir=tmp_path) != first
