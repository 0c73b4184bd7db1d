"""A run's address holds what the run can see, and nothing else."""

from __future__ import annotations

import hashlib
import importlib
import os
import sys

import pytest

from fedmuscle_lib import run
from fedmuscle_lib.fedmuscle import algorithms
from fedmuscle_lib.fedmuscle.algorithms import Algorithm, IgnoredSetting
from fedmuscle_lib.fedmuscle.algorithms.fedmuscle import FedMuscle
from fedmuscle_lib.fedmuscle.settings import Settings
from fedmuscle_lib.runs.address import address_of, cached_digests, files_digest

ALGORITHMS = algorithms.names()
USER_ALGORITHM = """
from fedmuscle_lib.fedmuscle.algorithms.fedmuscle import FedMuscle

class Mine(FedMuscle):
    name, label, source = "mine", "Mine", "ours"
    strength = {strength}
"""


@pytest.fixture
def write_algorithm(tmp_path, monkeypatch):
    """Writes a user's algorithm into a folder that the registry looks at, and imports it as it then
    is.
    """
    monkeypatch.setattr(algorithms, "__path__", [*algorithms.__path__, str(tmp_path)])
    monkeypatch.setattr(Algorithm, "registry", dict(Algorithm.registry))

    def write(name: str = "mine", **values) -> None:
        (tmp_path / f"{name}.py").write_text(USER_ALGORITHM.format(**values))
        importlib.invalidate_caches()
        sys.modules.pop(f"fedmuscle_lib.fedmuscle.algorithms.{name}", None)
        importlib.import_module(f"fedmuscle_lib.fedmuscle.algorithms.{name}")

    yield write
    sys.modules.pop("fedmuscle_lib.fedmuscle.algorithms.mine", None)


CHANGES = [
    {"tau": 0.3},
    {"reply": "factored"},
    {"cl_epochs": 2},
    {"public": "coco"},
    {"optimisers": "shared"},
    {"projection": "frozen"},
    {"public_batch_size": 16},
    {"refit": 1},
    {"alpha": 0.5},
]


def test_a_new_algorithm_leaves_every_address_as_it_was(settings, write_algorithm):
    with cached_digests():
        before = {name: address_of(settings(algorithm=name)) for name in ALGORITHMS}
        write_algorithm(strength=1)
        assert "mine" in algorithms.names()
        assert {name: address_of(settings(algorithm=name)) for name in ALGORITHMS} == before


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_setting_is_in_the_address_unless_the_algorithm_ignores_it(settings, name):
    with cached_digests():
        usual = address_of(settings(algorithm=name))
        left = [
            change for change in CHANGES if address_of(settings(algorithm=name, **change)) == usual
        ]
    assert left == [
        change for change in CHANGES if set(change) <= set(algorithms.get(name).ignores)
    ]


def test_names_and_places_are_not_in_the_address(settings, small_world, tmp_path):
    whole = settings(setup="setup1", users=(1, 2, 3, 4, 5, 6))
    assert address_of(whole) == address_of(settings(setup="setup1", users=None))
    assert address_of(whole) == address_of(
        settings(setup="setup2", users=(1, 2, 3, 4, 5, 6), lora_blocks="all")
    )
    usual = {
        "data_dir": small_world,
        "models_path": small_world / "models",
        "backbones": settings().backbones,
    }
    numbers = settings().model_dump(
        exclude={"profile", "data_dir", "models_path", "backbones", "algorithm"}
    )
    assert address_of(Settings(**numbers | usual | {"profile": "paper"})) == address_of(settings())
    (tmp_path / "elsewhere").symlink_to(small_world)
    places = {"data_dir": tmp_path / "elsewhere", "models_path": tmp_path / "elsewhere/models"}
    assert address_of(settings(**places)) == address_of(settings())


@pytest.mark.parametrize(
    ("one_way", "another"),
    [
        ({"lr": 3e-3}, {"lr": {"default": 3e-3}}),
        (
            {"lr": {"default": 1e-3, "IC10": 3e-3}},
            {"lr": {"default": 3e-3, "MLC": 1e-3, "IC100": 1e-3, "TC": 9.0}},
        ),
        ({}, {"lora_blocks": {"default": "all", "SS": "none"}}),
        ({"local_epochs": 2}, {"epochs": 6}),
        (
            {"epochs": {"default": 5, "MLC": 3}},
            {"local_epochs": 1, "epochs": {"default": 5, "MLC": None}},
        ),
    ],
    ids=str,
)
def test_two_ways_of_writing_the_members_values_are_one_run(settings, one_way, another):
    with cached_digests():
        plain, *both = (address_of(settings(rounds=3, **given)) for given in ({}, one_way, another))
    assert both[0] == both[1]
    assert (both[0] == plain) == (one_way == {})


def test_what_a_member_has_by_its_task_is_in_the_address(settings):
    values = {
        "lr": 2e-3,
        "head_layers": 1,
        "head_hidden": 9,
        "lora_layers": "attention",
        "lora_blocks": "last",
        "epochs": 9,
    }
    with cached_digests():
        usual, without = address_of(settings()), address_of(settings(users=(2, 5), others=1))
        for name, value in values.items():
            by_task = {"default": getattr(settings(), name), "IC10": value}
            assert address_of(settings(**{name: by_task})) != usual
            assert address_of(settings(**{name: by_task}, users=(2, 5), others=1)) == without


def test_raising_a_version_moves_the_runs_that_it_is_about_and_no_other(settings, monkeypatch):
    def addresses():
        with cached_digests():
            return {name: address_of(settings(algorithm=name)) for name in ALGORITHMS}

    before = addresses()
    monkeypatch.setattr(FedMuscle, "version", 2)
    moved = {name for name, address in addresses().items() if address != before[name]}
    assert moved == {name for name in ALGORITHMS if issubclass(algorithms.get(name), FedMuscle)}
    monkeypatch.setattr("fedmuscle_lib.fedmuscle.system.CORE", 2)
    assert not set(addresses().values()) & set(before.values())


def test_a_users_algorithm_has_its_source_in_the_address(settings, write_algorithm):
    write_algorithm(strength=1)
    first = address_of(settings(algorithm="mine"))
    write_algorithm(strength=1)
    assert address_of(settings(algorithm="mine")) == first
    write_algorithm(strength=2)
    assert address_of(settings(algorithm="mine")) != first


def test_an_algorithm_of_a_notebooks_cell_is_refused_with_the_place_where_it_belongs(
    settings, store, monkeypatch
):
    monkeypatch.setattr(Algorithm, "registry", dict(Algorithm.registry))
    cell = "class InACell(FedMuscle):\n    name, label = 'in_a_cell', 'In a cell'\n"
    exec(cell, {"FedMuscle": FedMuscle, "__name__": "__main__"})
    with pytest.raises(
        ValueError,
        match=(
            "InACell is defined in a notebook's cell.*fedmuscle_lib/fedmuscle/algorithms/inacell.py"
        ),
    ):
        run(settings(algorithm="in_a_cell"), progress=str, store=store)


def test_an_algorithm_that_reads_what_it_says_to_ignore_is_refused(
    settings, store, write_algorithm, tmp_path
):
    (tmp_path / "careless.py").write_text(
        "from fedmuscle_lib.fedmuscle.algorithms.fedmuscle import FedMuscle\n\n"
        "class Careless(FedMuscle):\n    name, label, ignores = 'careless', 'Careless', ('tau',)\n"
    )
    importlib.import_module("fedmuscle_lib.fedmuscle.algorithms.careless")
    with pytest.raises(IgnoredSetting, match="careless.*tau"):
        run(settings(algorithm="careless", users=(5, 6), others=1), progress=str, store=store)
    assert not any(entry.done for entry in store.entries())
    sys.modules.pop("fedmuscle_lib.fedmuscle.algorithms.careless")


def test_a_checkpoints_card_is_not_in_the_address_and_its_weights_are(
    settings, tmp_path, mini_world
):
    import shutil

    models = tmp_path / "models"
    shutil.copytree(mini_world / "models", models)
    s = settings(models_path=models)
    before = address_of(s)
    (models / "vit-small/README.md").write_text("another card")
    assert address_of(s) == before
    weights = models / "vit-small/model.safetensors"
    weights.write_bytes(weights.read_bytes() + b" ")
    assert address_of(s) != before


def test_pictures_that_are_exchanged_with_their_size_and_time_are_read_again(tmp_path):
    """As by a copy that keeps times; in one process, which remembers what it has read."""
    (tmp_path / "data").mkdir()
    (tmp_path / "real").mkdir()
    (tmp_path / "data/images").symlink_to(tmp_path / "real")
    found = []
    for colour in (b"white", b"black"):
        (tmp_path / "new.png").write_bytes(colour)
        os.utime(tmp_path / "new.png", (1, 1))
        (tmp_path / "new.png").replace(tmp_path / "real/a.png")
        found.append(files_digest(tmp_path / "data"))
    assert found[0] != found[1]


def test_the_digests_of_folders_are_those_of_the_stored_runs(tmp_path):
    """Their addresses were made of them."""
    (tmp_path / "train").mkdir()
    (tmp_path / "train/a.png").write_bytes(b"white")
    (tmp_path / "manifest.json").write_bytes(b"{}")
    (tmp_path / "b.png").symlink_to("train/a.png")
    (tmp_path / "c.png").symlink_to("nowhere")
    lines = b"".join(
        name + b" 5\n" + hashlib.sha256(b"white").digest() for name in (b"/b.png", b"/train/a.png")
    )
    assert files_digest(tmp_path) == hashlib.sha256(lines).hexdigest()
