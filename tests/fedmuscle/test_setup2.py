"""Users who segment, classify texts and generate them: what they read, what they send, and what is
refused.

Checkpoints are tiny and random; pictures are squares of a category's grey on black, and captions
and texts name categories.
"""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    BertConfig,
    BertModel,
    DistilBertConfig,
    DistilBertModel,
    GPT2Config,
    GPT2Model,
    PreTrainedTokenizerFast,
    SegformerConfig,
    SegformerModel,
)

from data_prep.io.writers import write_coco, write_images, write_texts
from fedmuscle_lib import Settings, run
from fedmuscle_lib.core.errors import DataError
from fedmuscle_lib.data.encodings import Pixels, Tokens
from fedmuscle_lib.data.public import read_public
from fedmuscle_lib.fedmuscle.build import build
from fedmuscle_lib.fedmuscle.settings import parse
from fedmuscle_lib.models import load_backbone, load_tokenizer
from fedmuscle_lib.tasks import TASKS

SIZE = 32
WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "a",
    "picture",
    "of",
    "and",
    *(f"thing{i}" for i in range(10)),
]
CATEGORIES = {3: "cat", 5: "dog"}
N = 12


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("setup2")
    torch.manual_seed(0)
    small = {"vocab_size": len(WORDS), "max_position_embeddings": 24}
    checkpoints = {
        "bert": BertModel(
            BertConfig(
                hidden_size=16,
                num_hidden_layers=1,
                num_attention_heads=2,
                intermediate_size=16,
                **small,
            )
        ),
        "distilbert": DistilBertModel(
            DistilBertConfig(dim=16, n_layers=1, n_heads=2, hidden_dim=16, **small)
        ),
        "gpt2": GPT2Model(
            GPT2Config(
                vocab_size=len(WORDS),
                n_positions=24,
                n_embd=16,
                n_layer=1,
                n_head=2,
                eos_token_id=3,
            )
        ),
    }
    for name, model in checkpoints.items():
        model.save_pretrained(root / "models" / name)
        words = Tokenizer(
            models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]")
        )
        words.pre_tokenizer = pre_tokenizers.Whitespace()
        special = {"unk_token": "[UNK]", "eos_token": "[SEP]"} | (
            {} if name == "gpt2" else {"pad_token": "[PAD]"}
        )
        PreTrainedTokenizerFast(tokenizer_object=words, **special).save_pretrained(
            root / "models" / name
        )
    stages = {
        "depths": [1] * 4,
        "hidden_sizes": [8, 8, 16, 16],
        "num_attention_heads": [1, 1, 2, 2],
        "sr_ratios": [2, 2, 1, 1],
    }
    SegformerModel(SegformerConfig(decoder_hidden_size=16, **stages)).save_pretrained(
        root / "models/segformer"
    )

    rng = np.random.RandomState(0)
    for split in ("train", "val", "test"):
        for client in range(2):
            classes = rng.choice(list(CATEGORIES), (N, 1))
            masks = np.zeros((N, 1, SIZE, SIZE), bool)
            masks[:, :, 8:24, 8:24] = True
            pictures = np.zeros((N, SIZE, SIZE, 3), np.uint8)
            pictures[:, 8:24, 8:24] = 40 * classes[..., None, None]
            names = write_images(
                root / "semseg_setup/images" / split, pictures, stem=f"client_{client}_"
            )
            write_coco(
                root / f"semseg_setup/{split}/client_{client}.json",
                names,
                classes,
                masks,
                CATEGORIES,
                (SIZE, SIZE),
            )
            labels = np.arange(N) % 10
            texts = [f"a picture of thing{label} and thing{(label + 1) % 10}" for label in labels]
            for folder in ("yahoo_qa", "ag_news"):
                (root / "TC" / folder / split).mkdir(parents=True, exist_ok=True)
                write_texts(root / f"TC/{folder}/{split}/client_{client}.pkl", texts, labels)
    public = root / "TC/flicker_public"
    names = write_images(public / "images", rng.randint(0, 256, (16, SIZE, SIZE, 3), np.uint8))
    captions = {name: [f"a thing{i % 10}", "another caption"] for i, name in enumerate(names)}
    (public / "image_file_name_to_caption.pkl").write_bytes(pickle.dumps(captions))
    return root


@pytest.fixture
def settings(world):
    names = ("segformer", "segformer", "bert", "distilbert", "gpt2")
    backbones = dict(
        zip(
            ("SegFormer-B0", "SegFormer-B1", "BERT-Base", "DistilBERT-Base", "GPT-2"),
            names,
            strict=True,
        )
    )

    def make(**given):
        small = {
            "rounds": 2,
            "local_epochs": 1,
            "public_size": 16,
            "batch_size": 8,
            "mask_size": SIZE,
            "evaluate_every": 1,
            "others": 2,
        }
        small["train_samples"] = {"SS": 8, "TC": 8, "TG": 8}
        where = {"data_dir": world, "models_path": world / "models", "backbones": backbones}
        return Settings(
            **(
                {"setup": "setup2_generation", "users": (7, 8, 9, 10, 11), "public": "flickr30k"}
                | small
                | where
                | given
            )
        )

    return make


def tokens(world, name="bert", longest=24):
    return Tokens(load_tokenizer(world / "models" / name), longest)


# --- models


def test_every_user_represents_the_public_set_by_unit_vectors_and_answers_its_task(settings):
    federation = build(settings())
    shapes = {7: (4, 3, 8, 8), 8: (4, 3, 8, 8), 9: (4, 10), 10: (4, 10), 11: (4, 6, len(WORDS))}
    for client in federation.clients:
        z = client.represent(torch.arange(16))
        assert z.shape == (16, 256)
        torch.testing.assert_close(z.norm(dim=1), torch.ones(16))
        assert client.model(client.train.inputs[:4]).shape == shapes[client.user.number]
    pictures, captions = federation.clients[0].public, federation.clients[2].public
    assert pictures.shape == (16, 3, SIZE, SIZE) and captions.ndim == 2 and len(captions) == 16
    assert federation.clients[1].public is pictures  # once for both


def test_training_changes_lora_projection_and_head_and_alignment_leaves_heads_alone(settings):
    class Pull:
        def loss(self, anchor):
            return anchor[:, 0].sum()

    for client in build(settings()).clients:
        frozen = {
            name: p.clone()
            for name, p in client.model.backbone.named_parameters()
            if not p.requires_grad
        }
        assert frozen and not any("lora" in name for name in frozen)
        before = {name: value.clone() for name, value in client.model.trainable_state().items()}
        client.fit(1)
        changed = {
            name
            for name, value in client.model.trainable_state().items()
            if not torch.equal(value, before[name])
        }
        assert any("lora_B" in name for name in changed)
        assert any("head" in name for name in changed) == (
            client.user.task != "TG"
        )  # whose head is the pretrained one
        heads = {
            name: value.clone()
            for name, value in client.model.trainable_state().items()
            if "head" in name
        }
        client.represent(torch.arange(8))
        client.align(Pull())
        assert all(
            torch.equal(value, client.model.trainable_state()[name])
            for name, value in heads.items()
        )
        assert all(
            torch.equal(p, frozen[name])
            for name, p in client.model.backbone.named_parameters()
            if name in frozen
        )


@pytest.mark.parametrize("name", ["bert", "distilbert", "gpt2"])
def test_padding_changes_no_representation(settings, name):
    user = {"bert": 9, "distilbert": 10, "gpt2": 11}[name]
    client = build(settings(users=(user, 7), others=1)).clients[-1]
    client.model.eval()
    ids = torch.tensor([[4, 5, 6, 8]])
    padded = torch.nn.functional.pad(ids, (0, 5), value=3 if name == "gpt2" else 0)
    torch.testing.assert_close(
        client.model.represent(ids), client.model.represent(padded), rtol=0, atol=1e-5
    )


def test_a_berts_cls_token_is_its_first_and_other_users_have_none(settings):
    for client in build(settings(users=(9, 10), others=1, pooling="cls")).clients:
        tokens = client.train.inputs[:4]
        with torch.no_grad():
            states = client.model.backbone(
                input_ids=tokens, attention_mask=(tokens != 0).long()
            ).last_hidden_state
            torch.testing.assert_close(client.model.features(tokens), states[:, 0])
    for user, kind in ((8, "segformer"), (11, "gpt2")):
        with pytest.raises(ValueError, match=f"user {user}: pooling: a {kind} has no first token"):
            build(settings(users=(9, user), others=1, pooling="cls"))


# --- runs


def test_a_multi_modal_run_resumes_to_the_same_metrics(settings, cut_off_and_resumed):
    """The decoder's running statistics are in the checkpoint too, and so are the references."""
    history = cut_off_and_resumed(settings(algorithm="anchored", users=(7, 9, 11)))
    metrics = history.final().set_index("user").metric
    assert metrics.to_dict() == {7: "mIoU", 9: "Accuracy", 11: "Perplexity"}
    assert (history.costs.uplink_bytes > 0).all()


def test_users_learn_their_tasks(settings, store):
    """Squares by their grey, texts by the things they name: above the trivial answer within a few
    epochs.
    """
    history = run(
        settings(algorithm="local", users=(7, 9, 11), rounds=1, local_epochs=60, lr=5e-3),
        progress=str,
        store=store,
    )
    value = history.final().set_index("user").value
    all_background = 100 * 0.75 / 3
    assert (
        value[7] > 1.5 * all_background and value[9] > 30 and value[11] < 17
    )  # of 10 classes; of 18 words


def test_texts_have_no_augmented_views(settings, store):
    with pytest.raises(ValueError, match="user 9 reads texts"):
        run(settings(algorithm="simclr", users=(7, 9), others=1), progress=str, store=store)


def test_predictions_of_pixels_have_no_label_space(settings, store):
    with pytest.raises(ValueError, match="user 7: SS has no label space"):
        run(settings(algorithm="feddf"), progress=str, store=store)


# --- temperatures


def test_temperatures_by_pair_of_tasks_or_of_users(settings, store):
    s = settings(
        rounds=1,
        tau={"default": 0.2, "SS-TC": 100, "7-9": 50},
        tau_prime={"default": 0.15, "TC-SS": 90, "7-9": 40},
    )
    assert s.temperature("tau", 7, 10) == s.temperature("tau", 10, 7) == 100
    assert s.temperature("tau", 9, 7) == 50 and s.temperature("tau", 7, 8) == 0.2
    assert s.temperature("tau_prime", 8, 9) == 90
    assert len(run(s, progress=str, store=store).final()) == 5


@pytest.mark.parametrize(
    ("tau", "message"),
    [
        ({"SS-TC": 100}, "need a 'default'"),
        ({"default": 0.2, "SS-XX": 1}, "'SS-XX' is neither two tasks"),
        ({"default": 0.2, "7": 1}, "'7' is neither"),
        ({"default": 0.2, "SS-TC": 1, "TC-SS": 2}, "twice"),
        ({"default": 0.2, "SS-TC": -1}, "tau = -1.0 for user 7, user 9: must be positive"),
        ({"default": 0.2, "SS-TC": 0.1}, "tau_prime = 0.15 exceeds tau = 0.1 for user 7, user 9"),
    ],
)
def test_wrong_temperatures_by_pair_are_named(settings, tau, message):
    base = settings().model_dump()
    with pytest.raises(ValueError, match=message):
        parse(base | {"tau": tau})


# --- files


def test_masks_are_read_by_pixel(world):
    samples, classes = TASKS["SS"].read(world, 0, "train", Pixels(SIZE))
    assert samples.targets.shape == (N, SIZE, SIZE) and len(classes) == 2
    inside = samples.targets[:, 8:24, 8:24].flatten(1)
    assert (inside == inside[:, :1]).all() and set(inside[:, 0].tolist()) <= {1, 2}
    outside = samples.targets.clone()
    outside[:, 8:24, 8:24] = 0
    assert (outside == 0).all()
    half = TASKS["SS"].read(world, 0, "train", Pixels(SIZE // 2))[0]
    assert torch.equal(half.targets, samples.targets[:, ::2, ::2])


def test_captions_are_the_public_pictures_own(world):
    encoding = tokens(world)
    ids = read_public(world / "TC/flicker_public", 3, encoding)
    assert torch.equal(ids, encoding.encode(["a thing0", "a thing1", "a thing2"]))


def test_a_long_text_is_cut_and_a_short_one_padded(world):
    ids = tokens(world, longest=3).encode(["a picture of thing1 and thing2", "a"])
    assert ids.tolist() == [[4, 5, 6], [4, 0, 0]]


@pytest.fixture
def damaged(world, tmp_path):
    """A copy of the world whose file at ``path`` is changed by ``change``, and that file."""

    def make(path, change):
        copy = tmp_path / "copy"
        shutil.copytree(world, copy)
        target = copy / path
        content = (
            json.loads(target.read_text())
            if path.endswith("json")
            else pickle.loads(target.read_bytes())
        )
        change(content)
        target.write_bytes(
            json.dumps(content).encode() if path.endswith("json") else pickle.dumps(content)
        )
        return copy

    return make


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content["texts"].__setitem__(3, "  "), "client_1.pkl: row 3 is empty"),
        (
            lambda content: content["texts"].__setitem__(5, 7),
            "client_1.pkl: row 5 is a int, no text",
        ),
        (lambda content: content["labels"].pop(), r"client_1.pkl: .*labels \(11,\) for 12 samples"),
        (
            lambda content: content["labels"].__setitem__(0, 10),
            "client_1.pkl: TC has labels 0..9, found 0..10",
        ),
        (lambda content: content.pop("texts"), "client_1.pkl: lacks .*texts"),
        (
            lambda content: content.update(texts="one text"),
            "client_1.pkl: texts are a str, not a list",
        ),
        (lambda content: content.update(texts=[], labels=[]), "client_1.pkl: holds no text"),
    ],
)
def test_a_wrong_text_is_named(damaged, world, change, message):
    with pytest.raises(DataError, match=message):
        TASKS["TC"].read(
            damaged("TC/yahoo_qa/train/client_1.pkl", change), 1, "train", tokens(world)
        )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda content: content.pop("000002.png"),
            "image_file_name_to_caption.pkl: 000002.png has no caption",
        ),
        (lambda content: content.update({"000001.png": []}), "000001.png has no caption"),
        (lambda content: content.update({"000001.png": " "}), "a caption of 000001.png is empty"),
    ],
)
def test_a_picture_without_a_caption_is_named(damaged, world, change, message):
    copy = damaged("TC/flicker_public/image_file_name_to_caption.pkl", change)
    with pytest.raises(DataError, match=message):
        read_public(copy / "TC/flicker_public", 16, tokens(world))
    assert (
        len(read_public(copy / "TC/flicker_public", 16, Pixels(SIZE))) == 16
    )  # whoever reads pictures needs none


def test_a_checkpoint_without_tokenizer_is_named(world, tmp_path):
    with pytest.raises(FileNotFoundError, match="tokenizer.json: no tokenizer"):
        load_tokenizer(world / "models/segformer")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(OSError, match="config.json: not a checkpoint's"):
        load_backbone(tmp_path)
