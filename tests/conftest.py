"""What every test shares: no display, one thread, the embedded world, and a store of its own."""

from __future__ import annotations

import json
import os
import pickle
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from types import SimpleNamespace

os.environ |= {
    "MPLBACKEND": "agg",
    "OMP_NUM_THREADS": "1",
}  # read when numpy, torch and matplotlib are imported

import pandas as pd
import pytest
import typer.main
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from torch.utils.flop_counter import FlopCounterMode

from data_prep.world.mini import prepare
from fedmuscle_lib import History, Settings, Store, run
from fedmuscle_lib.core import training

signal.signal(
    signal.SIGINT, signal.default_int_handler
)  # tests that run in the background would tell their processes to ignore it

# The same examples on every machine, so that the gate can't fail by chance.
hypothesis_settings.register_profile(
    "gate",
    max_examples=40,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
hypothesis_settings.load_profile("gate")

ROOT = Path(__file__).parents[1]
DEVICE = os.environ.get(
    "FEDMUSCLE_TEST_DEVICE", "cpu"
)  # where small runs and the loss are computed, such as "cuda:0"
# Three users of two tasks, few rounds: seconds on one core.
SMALL = {
    "users": (2, 5, 6),
    "others": 2,
    "rounds": 2,
    "local_epochs": 1,
    "public_size": 64,
    "evaluate_every": 1,
    "device": DEVICE,
}


IN_THE_GATE = "test_contraction.py"  # the one lesson that the gate executes


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as slow what an executed lesson shows."""
    for item in items:
        if "lesson" in getattr(item, "fixturenames", ()) and item.path.name != IN_THE_GATE:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session", autouse=True)
def one_operation_a_step() -> Iterator[None]:
    """Torch's counter makes a first step several times as long, and short runs have few others; no
    number but the count depends on it.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            training,
            "FlopCounterMode",
            lambda display: nullcontext(SimpleNamespace(get_total_flops=lambda: 1)),
        )
        yield


@pytest.fixture(scope="session", autouse=True)
def commands_made_once() -> Iterator[None]:
    """Typer makes all commands anew for each command line, which takes ten times as long as most of
    them.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command", cache(typer.main.get_command))
        yield


@pytest.fixture
def counted(monkeypatch) -> None:
    """Operations are counted as users' runs count them."""
    monkeypatch.setattr(training, "FlopCounterMode", FlopCounterMode)


@pytest.fixture(scope="session")
def mini_world(tmp_path_factory) -> Path:
    """The embedded world: the repository's own if it was prepared, else one of this session."""
    data_dir = ROOT / "data/mini"
    if not data_dir.exists():
        data_dir = tmp_path_factory.mktemp("data") / "mini"
    prepare(data_dir)
    return data_dir


FEW = 200  # samples of a set that the small world cuts


def _fewer(path: Path) -> bytes:
    """The first samples of a client's file, as many of each class where a sample has one."""
    if path.suffix == ".pkl":
        content = pickle.loads(path.read_bytes())
        labels, seen, kept = list(content["labels"]), Counter(), []
        each = FEW // len(set(labels))
        for row, label in enumerate(labels):
            seen[label] += 1
            kept += [row] * (seen[label] <= each)
        return pickle.dumps(
            {
                name: values[kept] if hasattr(values, "dtype") else [values[row] for row in kept]
                for name, values in content.items()
            }
        )
    document = json.loads(path.read_text(encoding="utf8"))
    document["images"] = document["images"][:FEW]
    kept = {image["id"] for image in document["images"]}
    document["annotations"] = [one for one in document["annotations"] if one["image_id"] in kept]
    return json.dumps(document).encode()


@pytest.fixture(scope="session")
def small_world(mini_world, tmp_path_factory) -> Path:
    """The embedded world, linked, with fewer samples to evaluate on and fewer public images: to go
    through all is most of a short run.
    """
    world = tmp_path_factory.mktemp("small") / "mini"
    for name in (
        "MLC_setup",
        "semseg_setup",
        "IC/CIFAR10",
        "IC/CIFAR100",
        "TC/yahoo_qa",
        "TC/ag_news",
    ):
        for split in ("val", "test"):
            (world / name / split).mkdir(parents=True)
            for path in (mini_world / name / split).iterdir():
                (world / name / split / path.name).write_bytes(_fewer(path))
    for public in ("MLC_setup/public_Pascal", "MLC_setup/public_COCO", "IC/CIFAR100/public"):
        (world / public).mkdir()
        for path in sorted((mini_world / public).iterdir())[:FEW]:
            (world / public / path.name).symlink_to(path)
    for folder in {path.parents[1] for path in world.rglob("*.*")} | {
        world,
        world / "IC",
        world / "TC",
    }:
        for path in (mini_world / folder.relative_to(world)).iterdir():
            if not (folder / path.name).exists():
                (folder / path.name).symlink_to(path)
    return world


@pytest.fixture(scope="session")
def device() -> str:
    """The device that small runs are computed on."""
    return DEVICE


@pytest.fixture
def archives(tmp_path) -> Path:
    """An empty folder for archives of data sets or wheels."""
    folder = tmp_path / "archives"
    folder.mkdir()
    return folder


@pytest.fixture
def assert_usual_rights() -> Iterator[Callable[[Path], None]]:
    """An uncommon umask, and what asserts that all below a folder has the rights that it gives."""
    before = os.umask(mask := 0o027)

    def check(folder: Path) -> None:
        for path in (one for one in folder.rglob("*") if not one.is_symlink()):
            usual = (0o777 if path.is_dir() else 0o666) & ~mask
            assert path.stat().st_mode & 0o777 == usual, path

    yield check
    os.umask(before)


@pytest.fixture
def store(tmp_path, monkeypatch) -> Store:
    """An empty store without shipped runs; the default one, too, where a test does not name it."""
    monkeypatch.setenv("FEDMUSCLE_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("FEDMUSCLE_SHIPPED", "0")
    return Store(tmp_path / "runs")


@pytest.fixture
def settings(small_settings, store) -> Callable[..., Settings]:
    """Makes settings of a small run in the small world, which goes to the empty store."""
    return small_settings


@pytest.fixture(scope="session")
def small_settings(small_world) -> Callable[..., Settings]:
    """Makes settings of a small run in the small world, wherever it is stored."""
    return lambda **given: Settings(
        **(SMALL | {"data_dir": small_world, "models_path": small_world / "models"} | given)
    )


class CutOff(Exception):
    """Ends a run in the middle, as a kill would."""


@pytest.fixture
def cut_off_and_resumed(store, tmp_path, counted) -> Callable[[Settings, int], History]:
    """Runs settings, ends the run after a round, goes on, and asserts that the whole is what an
    uninterrupted run gives.
    """

    def check(settings: Settings, after: int = 1) -> History:
        def cut(tick):
            if tick.round == after:
                raise CutOff

        with pytest.raises(CutOff):
            run(settings, progress=cut, store=store)
        ticks = []
        resumed = run(settings, progress=ticks.append, store=store)
        assert ticks[0].resumed and [tick.round for tick in ticks] == list(
            range(after, settings.rounds + 1)
        )
        whole = run(settings, progress=str, store=Store(tmp_path / "whole"))
        for name in ("metrics", "costs", "losses", "measures"):
            pd.testing.assert_frame_equal(
                getattr(resumed, name), getattr(whole, name), check_exact=True
            )
        return resumed

    return check
