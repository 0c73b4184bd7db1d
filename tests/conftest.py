"""What every test shares: no display, one thread, the embedded world, and a store of its own."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

os.environ |= {"MPLBACKEND": "agg", "OMP_NUM_THREADS": "1"}  # read when numpy, torch and matplotlib are imported

import pandas as pd
import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

from data_prep.world.mini import prepare
from fedmuscle_lib import History, Settings, Store, run

signal.signal(signal.SIGINT, signal.default_int_handler)  # tests that run in the background would tell their processes to ignore it

# The same examples on every machine, so that the gate can't fail by chance.
hypothesis_settings.register_profile(
    "gate", max_examples=40, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
hypothesis_settings.load_profile("gate")

ROOT = Path(__file__).parents[1]
# Three users of two tasks, few rounds: seconds on one core.
SMALL = {"users": (2, 5, 6), "others": 2, "rounds": 3, "local_epochs": 1, "public_size": 64, "evaluate_every": 1}


IN_THE_GATE = "test_contraction.py"  # the one lesson that the gate executes


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as slow what an executed lesson shows."""
    for item in items:
        if "lesson" in getattr(item, "fixturenames", ()) and item.path.name != IN_THE_GATE:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def mini_world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The embedded world: the repository's own if it was prepared, else one of this session."""
    data_dir = ROOT / "data/mini"
    if not data_dir.exists():
        data_dir = tmp_path_factory.mktemp("data") / "mini"
    prepare(data_dir)
    return data_dir


@pytest.fixture
def archives(tmp_path: Path) -> Path:
    """An empty folder for archives of data sets or wheels."""
    folder = tmp_path / "archives"
    folder.mkdir()
    return folder


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """An empty store without shipped runs; the default one, too, where a test does not name it."""
    monkeypatch.setenv("FEDMUSCLE_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("FEDMUSCLE_SHIPPED", "0")
    return Store(tmp_path / "runs")


@pytest.fixture
def settings(mini_world: Path, store: Store) -> Callable[..., Settings]:
    """Makes settings of a small run in the embedded world."""
    return lambda **given: Settings(**(SMALL | {"data_dir": mini_world, "models_path": mini_world / "models"} | given))


class CutOff(Exception):
    """Ends a run in the middle, as a kill would."""


@pytest.fixture
def cut_off_and_resumed(store: Store, tmp_path: Path) -> Callable[[Settings, int], History]:
    """Runs settings, ends the run after a round, goes on, and asserts that the whole is what an uninterrupted run gives."""

    def check(settings: Settings, after: int = 1) -> History:
        def cut(tick):
            if tick.round == after:
                raise CutOff

        with pytest.raises(CutOff):
            run(settings, progress=cut, store=store)
        ticks = []
        resumed = run(settings, progress=ticks.append, store=store)
        assert ticks[0].resumed and [tick.round for tick in ticks] == list(range(after, settings.rounds + 1))
        whole = run(settings, progress=str, store=Store(tmp_path / "whole"))
        for name in ("metrics", "costs", "losses", "measures"):
            pd.testing.assert_frame_equal(getattr(resumed, name), getattr(whole, name), check_exact=True)
        return resumed

    return check
