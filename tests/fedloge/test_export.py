"""A trained federation as a file: realignment goes on from it, unedited."""

from __future__ import annotations

import shutil

import pandas as pd
import pytest
import toy

from fedmuscle_lib import Store, run
from fedmuscle_lib.core.errors import DataError
from fedmuscle_lib.core.ownership import NotOurs
from fedmuscle_lib.fedloge.export import FILE, load, save
from fedmuscle_lib.fedloge.settings import Settings


@pytest.fixture(scope="module")
def settings(mini_world):
    return lambda **given: Settings(**toy.RUN | {"data_dir": mini_world} | given)


@pytest.fixture(scope="module")
def saved(settings, tmp_path_factory):
    """The folder of a trained federation."""
    folder = tmp_path_factory.mktemp("saved")
    run(settings(), progress=str, store=Store(folder / "runs"), save_models=folder)
    return folder


def evaluated(path, norm=None, **changes) -> pd.DataFrame:
    rounds = load(path, norm, **changes)
    return pd.DataFrame(rounds.federation.evaluate(rounds.settings.rounds))


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["fedloge", "ditto"])
def test_a_saved_model_predicts_as_at_the_end_of_its_run(
    settings, store, tmp_path, mini_world, algorithm
):
    history = run(
        settings(algorithm=algorithm, rounds=2),
        progress=str,
        store=store,
        save_models=tmp_path / "models",
    )
    again = evaluated(tmp_path / "models", data_dir=mini_world)
    pd.testing.assert_frame_equal(again, history.final(), check_exact=True)


def test_a_file_that_is_no_saved_model_is_named(settings, saved, store, tmp_path, mini_world):
    with pytest.raises(DataError, match=f"{FILE}: no such file"):
        load(tmp_path)
    path = tmp_path / FILE
    path.write_bytes(b"{}")
    with pytest.raises(DataError, match=f"{FILE}: not readable tensors"):
        load(path)
    with pytest.raises(NotOurs, match=f"{FILE}: not a model that was saved by this command"):
        run(
            settings(),
            progress=lambda tick: pytest.fail("a round was trained"),
            store=store,
            save_models=tmp_path,
        )
    path.unlink()
    trained = load(saved, data_dir=mini_world)
    for _ in range(2):  # its own is replaced
        save(trained, tmp_path)


def test_other_data_than_those_of_the_training_are_refused(saved, tmp_path, mini_world):
    other = tmp_path / "FedLT/glyphs"
    shutil.copytree(mini_world / "FedLT/glyphs", other)
    assert load(saved, data_dir=tmp_path)
    (other / "test.npz").write_bytes((other / "train.npz").read_bytes())
    with pytest.raises(DataError, match="trained with another FedLT/glyphs than that in"):
        load(saved, data_dir=tmp_path)
