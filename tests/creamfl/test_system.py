"""Settings, addresses, data and profiles of CreamFL's system."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
import tiny
import torch
from PIL import Image

from fedmuscle_lib.core.errors import DataError
from fedmuscle_lib.creamfl import algorithms
from fedmuscle_lib.creamfl.kinds import folders
from fedmuscle_lib.creamfl.networks import encoding_of, network
from fedmuscle_lib.creamfl.rounds import Rounds
from fedmuscle_lib.creamfl.settings import Settings
from fedmuscle_lib.data.captioned import KARPATHY, parts
from fedmuscle_lib.data.encodings import Pixels
from fedmuscle_lib.data.partition import balanced_partition, shards
from fedmuscle_lib.data.public import CAPTIONS
from fedmuscle_lib.runs.address import address_of


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"algorithm": "creamfl_musle"},
            "unknown algorithm 'creamfl_musle'; did you mean 'creamfl_muscle'",
        ),
        ({"clients": {"image": 3}}, "clients: unknown kind 'image'; did you mean 'images'"),
        ({"clients": {"images": -1}}, "greater than or equal to 0"),
        ({"participants": 36}, "participants: 36 of 35 clients"),
        ({"options": {"creamfl.tua": 1}}, "options of creamfl: unknown setting 'tua'"),
        ({"networks": {"images.texts": "gru-tiny"}}, r"networks: no party has 'images\.texts'"),
    ],
)
def test_what_contradicts_itself_is_refused(given, message):
    with pytest.raises(ValueError, match=message):
        Settings(**given)


def test_an_address_holds_what_changes_a_number(mini_world):
    def at(**given):
        return address_of(tiny.settings(mini_world, **given))

    names = algorithms.names()
    assert len({at(algorithm=name) for name in names}) == len(names)
    for change in (
        {"alpha": 1},
        {"dim": 9},
        {"seed": 1},
        {"clients": {"pairs": 3}},
        {"options": {"creamfl_muscle.others": 2}},
    ):
        assert at(**change) != at()
    assert (
        at(options={"creamfl.tau": 1})
        == at()
        == at(**tiny.settings(mini_world).model_dump() | {"profile": "paper"})
    )


# --- partitions and captioned folders


def test_a_balanced_partition_is_a_cover_in_which_nobody_takes_more_classes_than_its_share():
    labels = np.arange(3000) % 50
    own = balanced_partition(labels, 10, 0.1, 10, "one")
    assert np.array_equal(np.sort(np.concatenate(own)), np.arange(3000))
    sizes = [len(rows) for rows in own]
    assert min(sizes) >= 10 and max(sizes) < 300 + 60, (
        "a client that has a tenth gets no further class"
    )
    assert all(
        np.array_equal(a, b)
        for a, b in zip(own, balanced_partition(labels, 10, 0.1, 10, "one"), strict=True)
    )
    largest = [max(np.bincount(labels[rows], minlength=50)[c] for rows in own) for c in range(50)]
    assert np.mean(largest) / 60 > 0.5, "most of a class is with one client"
    with pytest.raises(
        ValueError, match="3000 samples can't be divided between 10 clients with 301 each"
    ):
        balanced_partition(labels, 10, 0.1, 301, "one")


def test_shards_are_neighbours_and_a_cover():
    own = shards(145_000, 15, 10, 0)
    assert [len(rows) for rows in own] == [9660] * 14 + [9760], "as in the authors' file"
    assert np.array_equal(np.sort(np.concatenate(own)), np.arange(145_000))
    assert all((np.diff(rows) > 1).sum() <= 9 for rows in own[:-1])
    with pytest.raises(
        ValueError, match="149 samples can't be divided between 15 clients with 10 shards each"
    ):
        shards(149, 15, 10, 0)


def test_a_kind_without_clients_needs_no_data(mini_world):
    alone = {"images": 0, "texts": 0, "pairs": 2}
    s = tiny.settings(mini_world, clients=alone, participants=1, images_folder="IC/nothing")
    assert folders(s) == sorted({s.public_folder, s.test_folder, s.pairs_folder})
    clients = tiny.federation(mini_world, **s.model_dump()).clients.values()
    assert [client.kind.name for client in clients] == ["pairs", "pairs"]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "images").mkdir()
    for i in range(6):
        Image.new("RGB", (8, 8), (i, 0, 0)).save(tmp_path / f"images/{i}.png")
    captions = {f"{i}.png": [f"one {i}", f"two {i}"] for i in range(5)} | {"5.png": "alone"}
    (tmp_path / "image_file_name_to_caption.pkl").write_bytes(pickle.dumps(captions))
    return tmp_path


def test_parts_of_a_folder_are_disjoint_and_karpathys_where_it_has_them(folder):
    found = parts(folder, {"test": 2, "public": 4})
    names = {name: {path.name for path in part.paths} for name, part in found.items()}
    assert not names["test"] & names["public"] and len(names["test"] | names["public"]) == 6
    assert all(own == parts(folder, {"test": 2, "public": 4})[name] for name, own in found.items())
    split = {
        "images": [
            {"filename": f"{i}.png", "split": "test" if i in (0, 5) else "restval"}
            for i in range(6)
        ]
    }
    (folder / "dataset.json").write_text(json.dumps(split))
    found = parts(folder, {"public": 4, "test": 2})
    assert {path.name for path in found["test"].paths} == {"0.png", "5.png"}
    assert sorted(map(len, found["test"].captions)) == [1, 2] and found[
        "public"
    ].image_of.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert [len(own) for own in found["public"].firsts().captions] == [1] * 4
    with pytest.raises(DataError, match="3 images were asked for test, 2 of 6 are left"):
        parts(folder, {"test": 3})


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        (CAPTIONS, pickle.dumps({"0.png": ["a caption"]}), "has no caption"),
        (KARPATHY, b'{"images": [{"filename": "0.png", "split": "test"}]}', "not Karpathy.*1"),
        ("images/3.png", b"no image", "not a readable image"),
    ],
)
def test_a_damaged_captioned_folder_is_named(folder, file, content, message):
    (folder / file).write_bytes(content)
    with pytest.raises(DataError, match=f"{file}: .*{message}"):
        parts(folder, {"public": 6})["public"].encoded(Pixels(8))


# --- networks


@pytest.mark.parametrize("name", ["gru-tiny", "gru-tiny+pie"])
def test_a_text_is_read_without_what_stands_behind_its_end(mini_world, name):
    s = tiny.settings(mini_world)
    torch.manual_seed(0)
    model = network(s, name, encoding_of(s, "texts", name)).eval()
    short, long = (
        model.represent(torch.tensor([[2, 5, 6]])),
        model.represent(torch.tensor([[2, 5, 6, 0, 0]])),
    )
    assert long.norm().item() == pytest.approx(1) and bool(model.pie) == name.endswith("+pie")
    torch.testing.assert_close(short, long)


@pytest.mark.slow
def test_the_papers_networks_run_on_few_pairs(mini_world):
    """Random weights: it shows that Appendix M's parties fit together, and nothing of their
    worth.
    """
    places = {
        name: getattr(tiny.settings(mini_world), name)
        for name in ("public_folder", "test_folder", "pairs_folder")
    }
    sizes = {
        "public_size": 4,
        "test_size": 5,
        "pairs_size": 4,
        "rounds": 1,
        "local_epochs": 1,
        "participants": 3,
    }
    clients = {"images": 1, "texts": 1, "pairs": 1}
    s = Settings(
        profile="paper", data_dir=mini_world, models_path=mini_world / "models", tokenizer="bert-base", device="cpu", clients=clients,
        image_size=64, **places, **sizes,
    )  # fmt: skip
    run = Rounds(s)
    run.round(0)
    assert run.facts()["trained"]["server"] > 120e6
    assert all(0 <= row["value"] <= 100 for row in run.rows["metrics"])
