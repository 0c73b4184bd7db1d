"""What training never changes is computed once: the kept states against the plain path, for every
family and placement of LoRA.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest
import torch

from fedmuscle_lib.fedmuscle.build import build
from fedmuscle_lib.models import FrozenStates, UserModel, frozen
from fedmuscle_lib.tasks import Task

FAMILIES = {
    "vit": 3,
    "segformer": 7,
    "bert": 9,
    "distilbert": 10,
    "gpt2": 11,
}  # a user with such a model
ROWS = torch.arange(3, 9)


@pytest.fixture(scope="module", autouse=True)
def files_read_once() -> Iterator[None]:
    """Of a user whose model is built several times."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Task, "read", cache(Task.read))
        yield


def _client(settings, user: int, **given):
    few = dict.fromkeys(("MLC", "SS", "TC", "TG"), 12)
    given = {
        "setup": "setup2_generation",
        "users": (user,),
        "algorithm": "local",
        "train_samples": few,
    } | given
    return build(settings(**{"lora_layers": "linear", "public": "flickr30k", **given})).clients[0]


def _gradients(model: UserModel, inputs) -> dict[str, torch.Tensor]:
    model.zero_grad()
    (model(inputs).square().mean() + model.represent(inputs)[:, 0].sum()).backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


PLACES = [
    (family, blocks)
    for family in FAMILIES
    for blocks in ("all", "last", "none")
    if (family, blocks) != ("gpt2", "none")
]


@pytest.mark.parametrize("family, blocks", PLACES)
def test_kept_states_are_the_plain_path(settings, family, blocks):
    """Forward and backward: 1e-5 of the largest entry, since a batch of another size may be summed
    in another order.
    """
    client = _client(settings, FAMILIES[family], lora_blocks=blocks)
    model, inputs = (
        client.model.eval(),
        client.train.inputs,
    )  # a decoder's batch norm hides a bias while it trains
    for p in (p for name, p in model.named_parameters() if "lora_B" in name):
        torch.nn.init.normal_(
            p, std=0.02, generator=torch.Generator().manual_seed(1)
        )  # zero at first, which would hide LoRA
    kept = FrozenStates().of(model, inputs).take(ROWS)
    plain, cached = _gradients(model, inputs[ROWS]), _gradients(model, kept)
    assert plain.keys() == cached.keys() and any("lora" in name for name in plain) == (
        blocks != "none"
    )
    assert model.depth == {"all": 0, "none": len(model._blocks)}.get(
        blocks, model.first_of_last(model.backbone)
    )
    for name, gradient in plain.items():
        torch.testing.assert_close(
            cached[name],
            gradient,
            rtol=1e-4,
            atol=1e-5 * gradient.abs().max().item() + 1e-9,
            msg=name,
        )
    torch.testing.assert_close(model(kept), model(inputs[ROWS]), rtol=1e-4, atol=1e-5)


def test_users_of_one_checkpoint_share_their_states(settings):
    """The public set's states of users 1 and 4, who read it alike; their local data differ."""
    federation = build(settings(users=(1, 3, 4), others=1, lora_blocks="last"))
    one, other, same = federation.clients
    assert one._states.of(one.model, one.public) is one._states.of(same.model, same.public)
    assert one._states.of(one.model, one.public) is not one._states.of(other.model, other.public)
    assert one._states.of(one.model, one.train.inputs) is not one._states.of(
        same.model, same.train.inputs
    )


def test_states_beyond_the_budget_lie_in_a_file(settings, monkeypatch):
    client = _client(settings, 3, lora_blocks="last")
    in_memory = FrozenStates().of(client.model, client.train.inputs).take(ROWS)["hidden"]
    monkeypatch.setattr(frozen, "BUDGET_BYTES", 1000)
    states = FrozenStates()
    assert torch.equal(states.of(client.model, client.train.inputs).take(ROWS)["hidden"], in_memory)
    assert states._bytes <= 1000


def test_operations_are_counted_as_written_and_as_done(settings, counted):
    """As written a step passes through the whole backbone; done are the adapted blocks, and the
    frozen ones once a sample.
    """
    counted = {}
    for blocks in ("all", "last"):
        client = _client(settings, 3, lora_blocks=blocks, lora_layers="linear")
        client.prepare()
        once = client.meter.done
        client.fit(2)
        counted[blocks] = client.meter.total, client.meter.done - once, once
    (plain, done, once), (written, ran, prepared) = counted["all"], counted["last"]
    assert plain == done and once == 0
    assert ran < written < plain and prepared > 0  # frozen blocks have no backward pass
    samples = len(client.train) + len(client.evaluation)
    frozen_pass = prepared // samples
    assert written - ran == frozen_pass * 2 * len(client.train)


def test_views_pass_through_everything(settings):
    """Augmented views are not kept."""
    client = _client(settings, 3, algorithm="simclr", lora_blocks="last")
    rows = torch.arange(4)
    flipped = client.represent(rows, lambda pictures: pictures.flip(-1))
    torch.testing.assert_close(flipped, client.model.represent(client.public[rows].flip(-1)))
    assert not torch.allclose(flipped, client.represent(rows))
