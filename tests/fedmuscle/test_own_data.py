"""Users with data of their own: their folder, their classes, and errors that speak of them."""

from __future__ import annotations

import json
import logging
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from fedmuscle_lib import Settings
from fedmuscle_lib.core.errors import DataError
from fedmuscle_lib.fedmuscle.build import build
from fedmuscle_lib.fedmuscle.system import SYSTEM
from fedmuscle_lib.runs.address import address_of
from fedmuscle_lib.runs.settings import parse

INTENTS = 150
TEXTS = {
    "setup": "setup2",
    "public": "flickr30k",
    "users": (9, 10),
    "others": 1,
    "rounds": 1,
    "public_size": 32,
}


@pytest.fixture
def intents(tmp_path) -> Path:
    """A folder of texts of 150 intents, 200 to train with."""
    folder = tmp_path / "my intents"
    for split, n in (("train", 200), ("val", 150), ("test", 150)):
        (folder / split).mkdir(parents=True)
        content = {
            "texts": [f"{split} text {i} of intent {i % INTENTS}" for i in range(n)],
            "labels": [i % INTENTS for i in range(n)],
        }
        (folder / split / "client_0.pkl").write_bytes(pickle.dumps(content))
    return folder


@pytest.fixture
def ours(settings, intents) -> Callable[..., Settings]:
    return lambda **given: settings(
        **(TEXTS | {"own": {9: {"folder": str(intents), "classes": INTENTS}}} | given)
    )


def test_a_user_has_as_many_classes_as_its_own_folder(ours):
    own, other = build(ours()).clients
    assert (len(own.classes), len(other.classes)) == (INTENTS, 10)
    assert own.model.head(torch.zeros(1, own.model.head.in_features)).shape == (1, INTENTS)
    assert own.evaluation.targets.tolist() == list(range(INTENTS))
    assert own.label_space != other.label_space


def test_two_sets_of_ten_classes_are_not_one(ours, intents):
    """Predictions are exchanged within a label space: of two folders, class 3 is not the same."""
    for path in intents.glob("*/client_0.pkl"):
        content = pickle.loads(path.read_bytes())
        path.write_bytes(
            pickle.dumps(content | {"labels": [label % 10 for label in content["labels"]]})
        )
    federation = build(ours(own={9: {"folder": str(intents)}}))
    assert [len(client.classes) for client in federation.clients] == [10, 10]
    assert [len(group.clients) for group in federation.groups()] == [1, 1]
    shared = build(
        ours(own={9: {"folder": str(intents)}, 10: {"folder": str(intents), "client": 0}})
    )
    assert [len(group.clients) for group in shared.groups()] == [2]


def test_own_data_are_in_the_address_by_their_content(ours, intents):
    before = address_of(ours())
    assert before != address_of(ours(own={})) and str(intents) not in json.dumps(
        [SYSTEM.key(ours()), SYSTEM.inputs(ours())]
    )
    elsewhere = intents.rename(intents.parent / "moved")
    assert address_of(ours(own={9: {"folder": str(elsewhere), "classes": INTENTS}})) == before
    assert address_of(ours(own={9: {"folder": str(elsewhere), "classes": INTENTS + 1}})) != before
    (elsewhere / "train/client_0.pkl").write_bytes(pickle.dumps({"texts": ["a"], "labels": [0]}))
    assert address_of(ours(own={9: {"folder": str(elsewhere), "classes": INTENTS}})) != before


def test_a_missing_file_speaks_of_its_own_folder(ours, intents):
    (intents / "test/client_0.pkl").unlink()
    with pytest.raises(
        DataError,
        match=r"my intents/test/client_0\.pkl: no such file; .*my intents needs train/",
    ) as refusal:
        build(ours())
    assert "data_prep" not in str(refusal.value)


def test_a_training_set_that_is_too_large_names_its_setting(ours):
    why = (
        r"user 9, .*my intents/train/client_0\.pkl: a local training set of 201 .* holds 200 .*"
        r" train_samples asks for fewer"
    )
    with pytest.raises(DataError, match=why):
        build(ours(train_samples={"TC": 201}))


@pytest.mark.parametrize(
    ("own", "why"),
    [
        ({3: {"folder": "x"}}, "own: no user 3 takes part; those who do: 9, 10"),
        ({9: {"folder": "x", "classes": 1}}, "own.9.classes: .*greater than or equal to 2"),
        ({9: {"folder": "x", "intents": 3}}, "own"),
    ],
)
def test_own_data_that_can_not_be_are_refused(own, why):
    with pytest.raises(ValueError, match=why):
        parse(Settings, TEXTS | {"own": own})


def test_tests_that_are_training_samples_are_remarked_on(ours, intents, caplog):
    (intents / "test/client_0.pkl").write_bytes((intents / "train/client_0.pkl").read_bytes())
    with caplog.at_level(logging.WARNING, "fedmuscle"):
        build(ours())
    assert (
        f"user 9: most samples of {intents}/test/client_0.pkl are also in"
        f" {intents}/train/client_0.pkl" in caplog.text
    )


def test_tests_that_are_public_samples_are_remarked_on(ours, intents, caplog):
    public = ours().data_dir / "TC/flicker_public"
    captions = pickle.loads((public / "image_file_name_to_caption.pkl").read_bytes())
    texts = [captions[path.name][0] for path in sorted((public / "images").iterdir())[:20]]
    tests = {"texts": texts, "labels": list(range(20))}
    (intents / "test/client_0.pkl").write_bytes(pickle.dumps(tests))
    with caplog.at_level(logging.WARNING, "fedmuscle"):
        build(ours())
    tested = f"user 9: most samples of {intents}/test/client_0.pkl"
    assert f"{tested} are also in {public}" in caplog.text


def test_folders_of_images_given_for_mlc_are_mlcs_alone(settings, small_world):
    images = small_world / "MLC_setup/images"
    given = {"root_train_image_folder": images / "train", "root_val_image_folder": images / "test"}
    who = {
        "setup": "setup2",
        "public": "flickr30k",
        "users": (2, 7),
        "others": 1,
        "public_size": 32,
    }
    (mlc, ss), (same, other) = (build(settings(**who, **own)).clients for own in ({}, given))
    for one, two in ((mlc, same), (ss, other)):
        assert torch.equal(one.train.inputs, two.train.inputs) and torch.equal(
            one.evaluation.inputs, two.evaluation.inputs
        )
