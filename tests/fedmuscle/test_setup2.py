"""Users who segment, classify texts and generate them: what they read, what they send, and what is
refused.
"""

from __future__ import annotations

import pytest
import torch

from fedmuscle_lib import run
from fedmuscle_lib.data.encodings import Tokens
from fedmuscle_lib.fedmuscle.build import build
from fedmuscle_lib.fedmuscle.settings import parse
from fedmuscle_lib.models import load_tokenizer
from fedmuscle_lib.models.text import padding

SMALL = {
    "setup": "setup2_generation",
    "users": (7, 8, 9, 10, 11),
    "public": "flickr30k",
    "others": 2,
    "public_size": 16,
    "batch_size": 8,
    "train_samples": {"SS": 8, "TC": 8, "TG": 8},
}


@pytest.fixture
def settings(settings):
    return lambda **given: settings(**(SMALL | given))


def test_every_user_represents_the_public_set_by_unit_vectors_and_answers_its_task(settings):
    federation = build(settings())
    for client in federation.clients:
        z = client.represent(torch.arange(16))
        assert z.shape == (16, 256)
        torch.testing.assert_close(z.norm(dim=1), torch.ones(16))
        outputs = client.model(client.train.inputs[:4]).shape
        length, words = client.train.inputs.shape[1], client.model.backbone.config
        assert (
            outputs
            == {
                "SS": (4, 1 + len(client.classes), 8, 8),
                "TC": (4, 10),
                "TG": (4, length, getattr(words, "vocab_size", 0)),
            }[client.user.task]
        )
    pictures, captions = federation.clients[0].public, federation.clients[2].public
    assert pictures.shape == (16, 3, 32, 32) and captions.ndim == 2 and len(captions) == 16
    assert federation.clients[1].public is pictures  # once for both


def test_training_changes_lora_projection_and_head_and_alignment_leaves_heads_alone(settings):
    class Pull:
        def loss(self, anchor):
            return anchor[:, 0].sum()

    def changed(client, before):
        state = client.model.state_dict()
        return {name for name in before if not torch.equal(state[name], before[name])}

    for client in build(settings()).clients:
        before = {name: value.clone() for name, value in client.model.state_dict().items()}
        trainable = client.model.trainable_state().keys()
        client.fit(1)
        moved = changed(client, before)
        assert moved <= trainable and any("lora_B" in name for name in moved)
        # a language model's head is the pretrained one
        assert any("head" in name for name in moved) == (client.user.task != "TG")
        before = {name: value.clone() for name, value in client.model.state_dict().items()}
        client.represent(torch.arange(8))
        client.align(Pull())
        assert not any("head" in name for name in changed(client, before))


@pytest.mark.parametrize("user", [9, 10, 11])
def test_padding_changes_no_representation(settings, user):
    client = build(settings(users=(user, 7), others=1)).clients[-1]
    client.model.eval()
    ids = torch.tensor([[4, 5, 6, 8]])
    padded = torch.nn.functional.pad(ids, (0, 5), value=padding(client.model.backbone.config))
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


def test_a_multi_modal_run_resumes_to_the_same_metrics(settings, cut_off_and_resumed):
    """The decoder's running statistics are in the checkpoint too, and so are the references."""
    history = cut_off_and_resumed(settings(algorithm="anchored", users=(7, 9, 11)))
    metrics = history.final().set_index("user").metric
    assert metrics.to_dict() == {7: "mIoU", 9: "Accuracy", 11: "Perplexity"}
    assert (history.costs.uplink_bytes > 0).all()


@pytest.mark.parametrize(
    ("algorithm", "message"),
    [("simclr", "user 9 reads texts"), ("feddf", "user 7: SS has no label space")],
)
def test_what_a_task_can_not_do_is_named(settings, store, algorithm, message):
    with pytest.raises(ValueError, match=message):
        run(settings(algorithm=algorithm, users=(7, 9), others=1), progress=str, store=store)


def test_temperatures_by_pair_of_tasks_or_of_users(settings):
    s = settings(
        tau={"default": 0.2, "SS-TC": 100, "7-9": 50},
        tau_prime={"default": 0.15, "TC-SS": 90, "7-9": 40},
    )
    assert s.temperature("tau", 7, 10) == s.temperature("tau", 10, 7) == 100
    assert s.temperature("tau", 9, 7) == 50 and s.temperature("tau", 7, 8) == 0.2
    assert s.temperature("tau_prime", 8, 9) == 90


@pytest.mark.parametrize(
    ("tau", "message"),
    [
        ({"SS-TC": 100}, "need a 'default'"),
        ({"default": 0.2, "SS-XX": 1}, "'SS-XX' is neither two tasks"),
        ({"default": 0.2, "SS-TC": 1, "TC-SS": 2}, "twice"),
        ({"default": 0.2, "SS-TC": -1}, "tau = -1.0 for user 7, user 9: must be positive"),
    ],
)
def test_wrong_temperatures_by_pair_are_named(settings, tau, message):
    with pytest.raises(ValueError, match=message):
        parse(settings().model_dump() | {"tau": tau})


def test_a_long_text_is_cut_and_a_short_one_padded(small_world):
    tokens = Tokens(load_tokenizer(small_world / "models/bert-base"), 5)
    long, short = tokens.encode(["one two three four five six seven", ""]).tolist()
    assert len(long) == 5 and tokens.tokenizer.pad_token_id not in long
    assert short[-1] == tokens.tokenizer.pad_token_id


def test_a_checkpoint_without_tokenizer_is_named(small_world):
    with pytest.raises(FileNotFoundError, match="tokenizer.json: no tokenizer"):
        load_tokenizer(small_world / "models/vit-tiny")
