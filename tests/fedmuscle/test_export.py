"""Trained users as folders: they predict and represent as at the end of their run, and what is not
theirs is refused.
"""

from __future__ import annotations

import json
import pickle
import shutil
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from safetensors.torch import save_file
from torch.testing import assert_close

from fedmuscle_lib import History, Settings, load_user, run
from fedmuscle_lib.core.errors import DataError
from fedmuscle_lib.data.client_files import Pickled
from fedmuscle_lib.fedmuscle.build import build
from fedmuscle_lib.fedmuscle.client import REFERENCE_BATCH, Client
from fedmuscle_lib.fedmuscle.export import SavedUser, save
from fedmuscle_lib.fedmuscle.rounds import Rounds
from fedmuscle_lib.models import load_backbone
from fedmuscle_lib.models.efficientnet_lite import EfficientNetLiteConfig, EfficientNetLiteModel

# A user of every kind of task, and of every family that the embedded world has.
EVERY = {
    "setup": "setup2_generation",
    "users": (2, 6, 7, 9, 10, 11),
    "public": "flickr30k",
    "rounds": 1,
    "public_size": 20,
}
EVERY |= {"train_samples": dict.fromkeys(("MLC", "IC10", "SS", "TC", "TG"), 12), "batch_size": 10}


def after(settings: Settings, folder: Path) -> Rounds:
    """Train, and save the users into ``folder``."""
    rounds = Rounds(settings)
    for round in range(settings.rounds):
        rounds.round(round)
    save(rounds, folder)
    return rounds


def metric(user: SavedUser, client: Client) -> float:
    outputs, targets = user.predict(client.evaluation.inputs), client.evaluation.targets
    parts = torch.arange(len(targets)).split(client.task.evaluation_batch)
    return client.task.score(sum(client.task.count(outputs[rows], targets[rows]) for rows in parts))


def assert_same(client: Client, folder: Path, **where: Path) -> SavedUser:
    """Assert that the saved user represents and does its task as the client, to the bit."""
    user, inputs = load_user(folder, **where), client.evaluation.inputs
    kept, model = client._states.of(client.model, inputs), client.model.eval()
    for found, call, batch in (
        (user.predict, model, client.task.evaluation_batch),
        (user.represent, model.represent, REFERENCE_BATCH),
    ):
        rows = torch.arange(batch)[: len(inputs)]
        with torch.no_grad():
            assert torch.equal(found(inputs)[rows], call(kept.take(rows)))
    if len(client.public):
        assert torch.equal(
            user.represent(client.public), client.over_public(client.model.represent)
        )
    with torch.autocast("cpu", torch.bfloat16), torch.inference_mode():  # the caller's affairs
        assert torch.equal(load_user(folder, **where).predict(inputs), user.predict(inputs))
    assert metric(user, client) == client.evaluate() == user.about["metrics"][-1]["value"]
    return user


@pytest.fixture(scope="module")
def trained(small_world, tmp_path_factory) -> tuple[Rounds, Path]:
    folder = tmp_path_factory.mktemp("users")
    settings = Settings(
        **EVERY, local_epochs=1, others=2, data_dir=small_world, models_path=small_world / "models"
    )
    return after(settings, folder), folder


@pytest.mark.parametrize("number", EVERY["users"])
def test_a_saved_user_predicts_and_represents_as_at_the_end_of_its_run(
    trained, small_world, number
):
    rounds, folder = trained
    (client,) = (client for client in rounds.federation.clients if client.user.number == number)
    checkpoint = small_world / "models" / rounds.settings.backbones[client.user.model]
    user = assert_same(client, folder / f"user_{number}", backbone=checkpoint)
    assert (user.number, user.task, user.classes) == (number, client.task, client.classes)
    adapted = PeftModel.from_pretrained(load_backbone(checkpoint), str(folder / f"user_{number}"))
    adapters = {
        name: tensor
        for name, tensor in adapted.base_model.model.state_dict().items()
        if ".lora_" in name
    }
    ours = {
        name: tensor
        for name, tensor in client.model.backbone.state_dict().items()
        if ".lora_" in name
    }
    assert ours.keys() == adapters.keys() and all(
        torch.equal(ours[name], adapters[name]) for name in ours
    )
    assert any(
        tensor.any() for name, tensor in ours.items() if ".lora_B." in name
    )  # it learnt something


def test_a_user_from_the_hubs_cache_is_the_same(trained, tmp_path):
    """There a snapshot's files are links to files that are named by their digests."""
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots/main"
    shutil.copytree(trained[1] / "user_6", blobs)
    snapshot.mkdir(parents=True)
    for number, file in enumerate(sorted(blobs.iterdir())):
        (snapshot / file.name).symlink_to(file.rename(blobs / f"{number:040x}"))
    pictures = torch.randint(0, 256, (5, 3, 32, 32), dtype=torch.uint8)
    found, own = (load_user(folder) for folder in (snapshot, trained[1] / "user_6"))
    assert torch.equal(found.predict(pictures), own.predict(pictures))


def test_the_adapter_alone_gives_the_features_through_peft(trained, small_world):
    user = load_user(trained[1] / "user_6")
    pictures = torch.randint(0, 256, (5, 3, 32, 32), dtype=torch.uint8)
    backbone = load_backbone(small_world / "models/vit-tiny")
    adapted = PeftModel.from_pretrained(backbone, str(trained[1] / "user_6"))
    with torch.no_grad():
        features = adapted(pictures / 127.5 - 1).last_hidden_state[:, 1:].mean(1)
        assert_close(features, user.model.features(pictures))


def test_files_are_read_as_the_run_read_them(trained, small_world):
    """Pictures and texts as they lie in the client files."""
    rounds, folder = trained
    for client in rounds.federation.clients:
        if client.task.suffix == ".pkl":
            path = small_world / client.task.folder / f"test/client_{client.user.client}.pkl"
            user = load_user(folder / f"user_{client.user.number}")
            given = (
                Pickled(path).images() if client.task.reads == "images" else Pickled(path).texts()
            )
            assert torch.equal(user.encode(given), client.evaluation.inputs)


def test_other_inputs_are_refused(trained):
    images, texts = (load_user(trained[1] / f"user_{number}") for number in (6, 9))
    floats = torch.rand(2, 3, 32, 32)
    for user, wrong in product((images, texts), (floats, [], "a text", floats.numpy())):
        with pytest.raises(ValueError, match=r"user \d reads (images|texts): .* got a "):
            user.predict(wrong)
    with pytest.raises(DataError, match="none.png: no such file"):
        images.predict(["none.png"])


def test_a_card_says_what_the_user_is(trained):
    rounds, folder = trained
    text = (folder / "user_6/README.md").read_text()
    about = json.loads((folder / "user_6/user.json").read_text())
    assert (
        "base_model: vit-tiny\n" in text
        and about["backbone"]["digest"] in text
        and about["run"]["address"] in text
    )
    assert f"| after alignment | Accuracy | {about['metrics'][-1]['value']:.2f} |" in text
    assert "IC/CIFAR10/train/client_0.pkl" in text and "| `rank` | `16` |" in text
    assert str(Path.home()) not in text and str(rounds.settings.data_dir) not in text
    assert all(path.suffix in {".md", ".json", ".safetensors"} for path in folder.glob("*/*"))


# --- families that the embedded world lacks, and models that a run leaves in another shape


@pytest.mark.slow
def test_convolutional_networks_too(settings, tmp_path):
    torch.manual_seed(0)
    config = EfficientNetLiteConfig(
        in_channels=[32, 8, 8, 16, 16, 24, 24],
        out_channels=[8, 8, 16, 16, 24, 24, 32],
        num_block_repeats=[1, 2, 1, 1, 2, 1, 1],
        width_coefficient=1.0,
        depth_coefficient=1.0,
        hidden_dim=1280,
        hidden_act="relu6",
        batch_norm_eps=1e-3,
    )
    EfficientNetLiteModel(config).save_pretrained(tmp_path / "lite")
    s = settings(
        setup="setup2",
        users=(5, 7),
        others=1,
        image_size=64,
        mask_size=64,
        rounds=1,
        models_path=tmp_path,
        backbones={"ViT-Small": "lite", "SegFormer-B0": "lite"},
        lora_layers="linear",
        train_samples={"IC100": 20, "SS": 20},
        batch_size=10,
        public_size=20,
    )
    for client in after(s, tmp_path / "users").federation.clients:
        folder = tmp_path / f"users/user_{client.user.number}"
        assert_same(client, folder, backbone=tmp_path / "lite")
        PeftModel.from_pretrained(load_backbone(tmp_path / "lite"), str(folder))


@pytest.mark.parametrize(
    "given",
    [
        {"algorithm": "probe"},
        {"algorithm": "head_only"},
        {"lora_blocks": "none"},
        {"lora_blocks": "last"},
    ],
)
def test_whatever_a_run_leaves_is_what_is_loaded(settings, small_world, tmp_path, given):
    s = settings(
        **(
            {
                "algorithm": "local",
                "rounds": 1,
                "users": (6,),
                "head_on": "features",
                "train_samples": {"IC10": 20},
            }
            | given
        )
    )
    (client,) = after(s, tmp_path).federation.clients
    folder = tmp_path / "user_6"
    user = assert_same(
        client, folder, backbone=small_world / "models" / s.backbones[client.user.model]
    )
    assert user.model.depth == client.model.depth
    assert (folder / "adapter_config.json").exists() == (s.lora_blocks != "none")


def test_a_user_takes_the_place_of_one_that_was_saved_before(settings, small_world, tmp_path):
    """With LoRA, without it, and with it again; what somebody else put there stays."""
    kept = tmp_path / "user_6/notes.pdf"
    for blocks in ("last", "none", "last"):
        rounds = after(
            settings(rounds=1, users=(6,), algorithm="local", lora_blocks=blocks), tmp_path
        )
        (client,) = rounds.federation.clients
        load_user(
            kept.parent,
            backbone=small_world / "models" / rounds.settings.backbones[client.user.model],
        )
        assert (kept.parent / "adapter_config.json").exists() == (blocks != "none")
        kept.write_text("mine", encoding="utf8")
    assert kept.read_text(encoding="utf8") == "mine"


def test_a_user_with_classes_of_its_own(settings, small_world, tmp_path):
    """It predicts and represents as at the end of the run, has its own classes, and tells nobody
    where its folder lies.
    """
    folder = tmp_path / "private/my intents"
    for split, n in (("train", 40), ("test", 30)):
        (folder / split).mkdir(parents=True)
        content = {
            "texts": [f"{split} text {i} of intent {i % 15}" for i in range(n)],
            "labels": [i % 15 for i in range(n)],
        }
        (folder / split / "client_3.pkl").write_bytes(pickle.dumps(content))
    own = {9: {"folder": str(folder), "classes": 15, "client": 3}}
    given = {
        "setup": "setup2",
        "public": "flickr30k",
        "users": (9, 10),
        "others": 1,
        "public_size": 20,
        "batch_size": 10,
    }
    rounds = after(
        settings(**given, rounds=1, train_samples={"TC": 20}, own=own), tmp_path / "users"
    )
    shutil.rmtree(folder)  # whoever takes the user home does not have its data
    for client, classes in zip(rounds.federation.clients, (15, 10), strict=True):
        checkpoint = small_world / "models" / rounds.settings.backbones[client.user.model]
        user = assert_same(
            client, tmp_path / f"users/user_{client.user.number}", backbone=checkpoint
        )
        assert user.classes == client.classes == tuple(range(classes)) and user.task == replace(
            client.task, folder=user.task.folder
        )
        assert user.predict(client.evaluation.inputs).shape == (
            len(client.evaluation.inputs),
            classes,
        )
        assert (
            f"- classes: {classes}\n"
            in (tmp_path / f"users/user_{client.user.number}/README.md").read_text()
        )
    card = (tmp_path / "users/user_9/README.md").read_text()
    assert "- local data: `my intents/train/client_3.pkl`" in card
    assert str(tmp_path) not in card + (tmp_path / "users/user_9/user.json").read_text()


# --- a run that saves


def final(history: History) -> dict[int, float]:
    return dict(zip(history.final().user, history.final().value, strict=True))


@pytest.mark.slow
def test_a_run_saves_its_users_and_a_stored_one_is_computed_again_for_them(
    settings, store, tmp_path
):
    s = settings(rounds=2)
    first = run(s, progress=str, store=store, save_models=tmp_path / "first")
    again = run(s, progress=str, store=store, save_models=tmp_path / "again")
    assert again.metrics.equals(first.metrics)
    for client in build(s).clients:
        checkpoint = s.models_path / s.backbones[client.user.model]
        users = [
            load_user(tmp_path / name / f"user_{client.user.number}", checkpoint)
            for name in ("first", "again")
        ]
        assert [metric(user, client) for user in users] == 2 * [final(first)[client.user.number]]


def test_a_stored_run_whose_metrics_are_others_is_told(settings, store, tmp_path, monkeypatch):
    s = settings(rounds=1, users=(6,), algorithm="local")
    run(s, progress=str, store=store)
    monkeypatch.setattr(Client, "evaluate", lambda self: 1.0)
    with pytest.raises(
        ValueError,
        match="computed again for its models, its metrics are not those of the computed run",
    ):
        run(s, progress=str, store=store, save_models=tmp_path / "models")


# --- what is refused


@pytest.fixture
def user(trained, tmp_path) -> Path:
    return Path(shutil.copytree(trained[1] / "user_9", tmp_path / "user_9"))


def test_another_backbone_is_refused(user, small_world, tmp_path):
    with pytest.raises(
        DataError, match="user_9: trained on bert-base with the digest .*; .*distilbert-base has"
    ):
        load_user(user, small_world / "models/distilbert-base")
    other = Path(shutil.copytree(small_world / "models/bert-base", tmp_path / "bert-base"))
    assert load_user(user, other)
    content = bytearray((other / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (other / "model.safetensors").write_bytes(content)
    with pytest.raises(DataError, match="user_9: trained on bert-base with the digest"):
        load_user(user, other)
    with pytest.raises(OSError, match="nowhere: no checkpoint"):
        load_user(user, tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["adapter_model.safetensors", "head.safetensors", "user.json"])
def test_a_file_that_is_missing_or_cut_off_is_named(user, small_world, name):
    path = user / name
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(
        (DataError, OSError), match="user_9.*not (readable|a readable|JSON)"
    ) as error:
        load_user(user, small_world / "models/bert-base")
    assert "\n" not in str(error.value)
    path.unlink()
    with pytest.raises((DataError, OSError), match=name):
        load_user(user, small_world / "models/bert-base")


def test_files_of_two_models_are_refused(user, small_world):
    """A description, and then a head, that do not fit the other files."""
    about = json.loads((user / "user.json").read_text())
    for options in ({"proj_dim": 7}, {"rank": 7}):
        (user / "user.json").write_text(json.dumps(about | {"options": about["options"] | options}))
        with pytest.raises(DataError, match=r"user_9/user\.json: not a saved user"):
            load_user(user, small_world / "models/bert-base")
    (user / "user.json").write_text(json.dumps(about))
    save_file({"head.0.weight": torch.zeros(1)}, user / "head.safetensors")
    with pytest.raises(DataError, match="not a saved user .*the head: '.* is not of this model"):
        load_user(user, small_world / "models/bert-base")


def test_a_folder_that_is_no_saved_users_is_left_alone(settings, store, tmp_path):
    (tmp_path / "user_6").mkdir()
    (tmp_path / "user_6/notes.pdf").write_text("mine")
    with pytest.raises(FileExistsError, match="user_6: holds what this command did not write"):
        run(settings(users=(6,), algorithm="local"), store=store, save_models=tmp_path)
    assert [path.name for path in tmp_path.rglob("*.*")] == [
        "notes.pdf"
    ] and not store.root.exists()
