"""The embedded world: nothing leaks between its parts, it is the same everywhere, and it is whole
or not there.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tiny_worlds import shrink
from transformers import AutoModel, AutoTokenizer

from data_prep import MINI_WEIGHTS
from data_prep.__main__ import main
from data_prep.world import language, mini
from data_prep.world.glyphs import SPLITS, Vocabulary, _draw, _font, _unit, vocabulary
from fedmuscle_lib.data import labelled_sets as labelled_sets
from fedmuscle_lib.data.pickles import load_pickle
from fedmuscle_lib.data.public import PUBLIC_SETS
from fedmuscle_lib.fedmuscle.setups import SETUPS, task_of

DIGEST = (  # of names and contents of the whole world
    "b575091d311e5dae375f363b16f4aad89de60167c61defdf4613d897e9662da7"
)
DOWNSTREAM = (*Vocabulary.ic100, *Vocabulary.digits)


# --- vocabulary


def _char(class_id: int) -> str:
    return chr(int(vocabulary().names[class_id].removeprefix("U+"), 16))


@pytest.mark.slow
def test_no_upstream_class_is_a_downstream_class():
    words = vocabulary()
    assert not set(words.upstream) & {*DOWNSTREAM, *words.mlc}
    assert set(words.mlc) <= set(DOWNSTREAM)
    assert len({words.names[c] for c in (*DOWNSTREAM, *words.upstream)}) == len(DOWNSTREAM) + len(
        words.upstream
    )
    assert words.instances["upstream"].keys() == set(words.upstream)
    upstream_rows = {row for rows in words.instances["upstream"].values() for row in rows}
    assert not upstream_rows & {
        row for split in SPLITS for rows in words.instances[split].values() for row in rows
    }


@pytest.mark.slow
def test_no_upstream_class_looks_like_a_digit():
    words = vocabulary()
    printed = _unit(
        np.stack(
            [
                _draw(_font(family, style), digit)
                for family in range(4)
                for style in range(4)
                for digit in "0123456789"
            ]
        )
    )
    likeness = {
        c: (_unit(words.masks[words.instances["upstream"][c]].numpy()) @ printed.T).max()
        for c in words.upstream
    }
    assert {_char(c): round(float(r), 2) for c, r in likeness.items() if r > 0.8} == {}


@pytest.mark.slow
def test_every_downstream_class_is_drawn_in_each_split_and_no_drawing_is_in_two():
    words = vocabulary()
    for split in SPLITS:
        assert words.instances[split].keys() == set(DOWNSTREAM)
        assert all(len(rows) for rows in words.instances[split].values())
    shared = []
    for c, (one, other) in itertools.product(DOWNSTREAM, itertools.combinations(SPLITS, 2)):
        rows, others = words.instances[one][c], words.instances[other][c]
        assert not set(rows) & set(others)
        if (words.masks[rows][:, None] == words.masks[others][None]).flatten(2).all(2).any():
            shared.append(words.names[c])
    assert shared == []


# --- the world on disk


@pytest.mark.slow
def test_the_world_is_made_again_alike_and_only_when_it_is_not_whole(mini_world, tmp_path):
    data_dir = tmp_path / "data/mini"
    manifest = mini.prepare(data_dir)
    assert manifest == json.loads((mini_world / "manifest.json").read_text()), (
        "data/mini is another generator's: raise mini.VERSION"
    )
    written = (data_dir / "manifest.json").stat()
    assert mini.prepare(data_dir) == manifest
    assert (data_dir / "manifest.json").stat().st_ino == written.st_ino
    assert list(data_dir.parent.iterdir()) == [data_dir]


def test_the_world_has_the_same_bytes_everywhere(mini_world):
    found = json.loads((mini_world / "manifest.json").read_text())["sha256"]
    assert found == DIGEST, (
        "another recipe raises mini.VERSION and records its digest here; another processor must not"
        " change it"
    )


@pytest.mark.slow
def test_pictures_do_not_follow_how_a_processor_rounds():
    """Torch's code for processors without AVX rounds sines, exponentials and sums in other ways."""
    drawn = """
import hashlib, numpy as np
from data_prep.world.glyphs import vocabulary
from data_prep.world.rendering import draw, single
words, rng = vocabulary(), np.random.RandomState(0)
pictures = draw(single(rng.choice(words.digits, 600)), "train", words, rng)
print(hashlib.sha256(pictures.uint8().tobytes() + (pictures.alphas > 0.5).numpy().tobytes()).hexdigest())
"""
    capabilities = [{}, {"ATEN_CPU_CAPABILITY": "default"}]
    commands = [
        subprocess.Popen(
            [sys.executable, "-c", drawn], env=os.environ | own, stdout=subprocess.PIPE
        )
        for own in capabilities
    ]
    one, other = (command.communicate()[0] for command in commands)
    assert len(one) == 65 and one == other


def test_an_interruption_leaves_nothing_that_looks_whole(tmp_path, monkeypatch):
    shrink(monkeypatch)
    monkeypatch.setattr(mini, "_public", _interrupt)
    with pytest.raises(KeyboardInterrupt):
        mini.prepare(tmp_path / "mini")
    assert list(tmp_path.iterdir()) == []


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.fixture
def tiny(tmp_path, monkeypatch) -> Path:
    """A world of few files, with a file of somebody else's inside."""
    shrink(monkeypatch)
    mini.prepare(tmp_path / "mini")
    (tmp_path / "mini/mine").mkdir()
    (tmp_path / "mini/mine/thesis.txt").write_text("mine")
    return tmp_path / "mini"


def test_a_damaged_world_is_mended_and_what_lies_beside_it_stays(tiny, capsys):
    manifest = json.loads((tiny / "manifest.json").read_text())
    damaged, lost = (tiny / name for name in manifest["files"][:2])
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:100])
    lost.unlink()
    assert main(["mini", "--data-dir", str(tiny)]) == 0
    assert f"left alone, such as {tiny}/mine/thesis.txt" in capsys.readouterr().out
    assert damaged.read_bytes() == whole and lost.exists()
    damaged.write_bytes(b"my data")
    lost.unlink()
    assert main(["mini", "--data-dir", str(tiny)]) == 2
    assert f"{damaged}: not what this command wrote" in capsys.readouterr().err
    assert damaged.read_bytes() == b"my data"


@pytest.mark.parametrize("moved", [0, 20])
def test_a_world_is_completed_that_was_killed_while_its_files_were_replaced(
    tiny, monkeypatch, moved
):
    monkeypatch.setattr(mini, "VERSION", mini.VERSION + 1)
    monkeypatch.setattr(mini, "TEST", dict.fromkeys(mini.FOLDERS, 1))
    replace, done = os.replace, []

    def killed(source, target):
        if Path(source).name.startswith("."):  # what `put` writes
            return replace(source, target)
        if len(done) == moved:
            raise KeyboardInterrupt
        done.append(target)
        return replace(source, target)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(os, "replace", killed)
        mini.prepare(tiny)
    manifest = mini.prepare(tiny)
    assert mini.prepare(tiny) == manifest
    assert mini.others(tiny, manifest) == ["mine/thesis.txt"]


def test_layout_is_the_readmes(mini_world):
    """Every user finds its files, and every public set has its pictures."""
    for user in (*SETUPS["setup2_generation"], *SETUPS["setup_noniid"]):
        folder = mini_world / task_of(user).folder
        for split in ("train", "val", "test"):
            assert list((folder / split).glob(f"client_{user.client}.*")), (
                f"user {user.number}: {folder / split}"
            )
    few = {"synthetic": 300, "noise": 300, "cifar10": 1024}
    for name, folder in PUBLIC_SETS.items():
        assert len(list((mini_world / folder).rglob("*.png"))) == few.get(name, mini.PUBLIC)
    for name, (_, n) in mini.SCENES.items():
        captions = load_pickle(mini_world / "MM" / name / "image_file_name_to_caption.pkl")
        assert {path.name for path in (mini_world / "MM" / name / "images").iterdir()} == set(
            captions
        ) and len(captions) == n
        assert {len(own) for own in captions.values()} == {mini.CAPTIONS}
    assert {path.name for path in (mini_world / "models").iterdir()} == {
        path.name for path in MINI_WEIGHTS.iterdir()
    }


@pytest.mark.slow
def test_no_picture_is_in_two_places(mini_world):
    places: dict[bytes, set[str]] = defaultdict(set)
    pictures = 0
    for path in mini_world.rglob("*.png"):
        places[np.asarray(Image.open(path)).tobytes()].add(str(path))
        pictures += 1
    for path in (mini_world / "IC").rglob("*.pkl"):
        for row, image in enumerate(load_pickle(path)["data"]):
            places[image.tobytes()].add(f"{path}:{row}")
            pictures += 1
    for path in (mini_world / "FedLT").rglob("*.npz"):
        for row, image in enumerate(np.load(path)["images"]):
            places[image.tobytes()].add(f"{path}:{row}")
            pictures += 1
    assert pictures > 20_000
    assert [where for where in places.values() if len(where) > 1] == []


def test_the_labelled_set_is_balanced_and_read_by_the_library(mini_world):
    found = labelled_sets.read(mini_world, "glyphs")
    for images, each in zip(found, (500, 100), strict=True):
        assert images.classes == tuple(f"digit {d}" for d in range(10))
        assert np.bincount(images.labels).tolist() == [each] * 10
        assert images.samples([0, 7]).inputs.shape == (2, 3, 32, 32)


def test_every_public_picture_has_a_caption_that_names_things_of_one_topic(mini_world):
    folder = mini_world / PUBLIC_SETS["flickr30k"]
    captions = load_pickle(folder / "image_file_name_to_caption.pkl")
    assert captions.keys() == {path.name for path in (folder / "images").iterdir()}
    for (caption,) in captions.values():
        named = [MEANING[word] for word in caption.split() if word in MEANING]
        assert len(named) in {1, 2}
        assert len({language.topic(c) for c in named}) == 1, caption


# --- language


MEANING = {name: c for c, names in language.names().items() for name in names}
USUAL = {names[0] for names in language.names().values()}


def _mentioned(texts: list[str]) -> list[list[str]]:
    return [[word for word in text.split() if word in MEANING] for text in texts]


def test_every_class_of_the_scenes_has_names_of_its_own():
    assert language.names().keys() == set(Vocabulary.mlc)
    assert len(MEANING) == sum(len(names) for names in language.names().values())
    assert sorted(c for t in range(language.N_TOPICS) for c in language.members(t)) == sorted(
        Vocabulary.mlc
    )


def test_a_caption_names_each_object_once():
    rng = np.random.RandomState(0)
    for _ in range(100):
        classes = np.append(rng.choice(Vocabulary.mlc, 2, replace=False), -1)
        (named,) = _mentioned([language.caption(classes, rng)])
        assert sorted(MEANING[name] for name in named) == sorted(classes[:2])


def test_a_question_is_mostly_about_its_topic():
    rng = np.random.RandomState(0)
    own = [
        language.topic(MEANING[name]) == 3
        for names in _mentioned([language.question(3, rng) for _ in range(500)])
        for name in names
    ]
    assert np.mean(own) > 0.7


def test_books_say_nothing_of_what_a_rare_name_has_to_do_with():
    """The company of a usual name is of its topic; that of a rare one is of its topic as often as
    of any other.
    """
    company: dict[bool, list[bool]] = {True: [], False: []}
    for names in _mentioned(language.books(5000, seed=0)):
        for name, other in itertools.permutations(names, 2):
            company[name in USUAL].append(
                language.topic(MEANING[name]) == language.topic(MEANING[other])
            )
    assert np.mean(company[True]) > 0.6
    assert len(company[False]) > 1000
    assert np.mean(company[False]) == pytest.approx(1 / language.N_TOPICS, abs=0.03)


def test_upstream_texts_and_the_users_share_no_name():
    upstream = {name for own in language.upstream_names() for name in own}
    assert len(upstream) == language.UPSTREAM_TOPICS * language.UPSTREAM_NAMES
    assert not upstream & MEANING.keys()
    assert not any(_mentioned(language.upstream_books(500, seed=0)))


# --- shipped backbones and the command


@pytest.mark.parametrize("folder", sorted(MINI_WEIGHTS.iterdir()), ids=lambda path: path.name)
def test_shipped_backbones_load_and_are_small(folder):
    model, faults = AutoModel.from_pretrained(
        folder, dtype=torch.float32, local_files_only=True, output_loading_info=True
    )
    assert not any(name for name in faults["unexpected_keys"])
    assert all("pooler" in name for name in faults["missing_keys"])
    report = json.loads((folder / "pretraining.json").read_text())
    assert f"{report['parameters']:,}" in (folder / "README.md").read_text()
    assert (folder / "model.safetensors").stat().st_size < 3e6
    if (folder / "tokenizer.json").exists():
        assert len(AutoTokenizer.from_pretrained(folder)) == model.config.vocab_size


def test_preparing_says_what_it_made(mini_world, monkeypatch, capsys):
    manifest = json.loads((mini_world / "manifest.json").read_text())
    monkeypatch.setattr(mini, "prepare", lambda data_dir: manifest)
    assert main(["mini", "--data-dir", str(mini_world)]) == 0
    preparing, made, *_ = capsys.readouterr().out.splitlines()
    assert f"preparing {mini_world}" in preparing
    assert f"mini: 30075 files, sha256 {DIGEST[:12]}" in made
