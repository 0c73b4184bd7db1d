"""A federation in one process: rounds that can be repeated and resumed to the bit, and what is
evaluated.
"""

from __future__ import annotations

import io

import pytest
import torch
import toy

from fedmuscle_lib.core.errors import Diverged
from fedmuscle_lib.fedloge.methods import Recipe
from fedmuscle_lib.fedloge.preprocessing import read
from fedmuscle_lib.runs.system import FederatedRounds

STATEFUL = pytest.mark.parametrize("name", ["fedloge", "ditto", "ratio_loss", "fedbabu"])


def kept(federation) -> dict:
    """What a checkpoint's file gives back of the federation's state."""
    buffer = io.BytesIO()
    torch.save(FederatedRounds(None, federation).state(), buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)


# --- rounds


@STATEFUL
def test_a_resumed_run_is_the_uninterrupted_one_to_the_bit(name):
    given = {"counts": toy.COUNTS * 2, "participation": 0.5}
    whole = toy.federation(name, **given)
    losses = [whole.round(round) for round in range(3)]

    cut = toy.federation(name, **given)
    cut.round(0)
    checkpoint = kept(cut)
    cut.round(1)  # what is lost
    resumed = toy.federation(name, **given)
    FederatedRounds(None, resumed).restore(checkpoint)
    assert [resumed.round(round) for round in (1, 2)] == losses[1:]
    assert toy.same(toy.tensors(resumed), toy.tensors(whole))
    assert resumed.evaluate(3) == whole.evaluate(3)
    assert (
        resumed.server.uplink == whole.server.uplink
        and resumed.server.downlink == whole.server.downlink
    )


def test_a_client_without_samples_is_never_drawn():
    federation = toy.federation(counts=(toy.COUNTS[0], (0, 0, 0, 0), toy.COUNTS[1]))
    federation.round(0)
    assert {client for _, client in federation.server.uplink} == {0, 2}


def test_a_loss_that_is_not_finite_names_its_client():
    with pytest.raises(
        Diverged,
        match=(
            r"client 0: the local loss is not finite in round 1, epoch \d; is lr = 1e\+20 too"
            " large"
        ),
    ):
        toy.federation(recipe=Recipe(lr=1e20, epochs=4)).round(0)


def test_logits_that_are_not_finite_are_no_accuracy():
    federation = toy.federation()
    federation.server.tensors["head.weight"].fill_(3e38)
    with pytest.raises(
        Diverged, match="the global model: the logits of the head '.*' are not finite"
    ):
        federation.evaluate(1)


# --- evaluation


def by_hand(federation, head: str, masked: bool) -> dict[str, tuple[float, int]]:
    """The mean over clients of each group's accuracy, from logits of each client's own images, and
    over how many clients.
    """
    test, scores = toy.samples((5,) * toy.CLASSES, seed=99), {}
    for client in federation.clients.values():
        rows = client.local_test
        if not len(rows):
            continue
        visit = client._visit(federation.server.tensors, 1)
        model, labels = federation.method.personal_backbone(visit).eval(), test.targets[rows]
        with torch.no_grad():
            logits = federation.method.personal_heads(visit)[head](model(read(test.inputs[rows])))
        if masked:
            logits[:, [c for c in range(toy.CLASSES) if c not in labels]] = -torch.inf
        hits = logits.argmax(1) == labels
        for group, classes in {"all": range(toy.CLASSES), **toy.GROUPS}.items():
            own = [
                bool(hit) for hit, label in zip(hits, labels, strict=True) if int(label) in classes
            ]
            if own:
                scores.setdefault(group, []).append(100 * sum(own) / len(own))
    return {
        group: (pytest.approx(sum(values) / len(values)), len(values))
        for group, values in scores.items()
    }


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    "name, head", [("fedavg", "head"), ("fedloge", "local + shared"), ("ditto", "head")]
)
def test_a_personal_value_is_the_unweighted_mean_over_clients_that_have_the_group(
    name, head, masked
):
    local_tests = [*toy.LOCAL_TESTS, torch.tensor([], dtype=torch.int64)]
    federation = toy.federation(name, counts=(*toy.COUNTS, (1, 1, 1, 1)), local_tests=local_tests)
    federation.round(0)
    rows = [
        row
        for row in federation.evaluate(1)
        if (row["scope"], row["head"], row["masked"]) == ("personal", head, masked)
    ]
    assert {row["group"]: (row["value"], row["clients"]) for row in rows} == by_hand(
        federation, head, masked
    )
    assert {row["group"]: row["clients"] for row in rows} == {
        "all": 2,
        "head": 2,
        "middle": 2,
        "tail": 1,
    }
