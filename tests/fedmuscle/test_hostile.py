"""Users who send something else than their representations."""

from typing import get_args

import pytest
import torch
from torch.nn.functional import normalize

from fedmuscle_lib.fedmuscle import algorithms
from fedmuscle_lib.fedmuscle.algorithms.controls import _RepresentAll
from fedmuscle_lib.fedmuscle.algorithms.directed import predictability
from fedmuscle_lib.fedmuscle.build import build
from fedmuscle_lib.fedmuscle.hostile import sent_in_place
from fedmuscle_lib.fedmuscle.outliers import MEASURES, measured, suspicion
from fedmuscle_lib.fedmuscle.settings import Lie

ROWS = torch.arange(32)
FEW = {
    "batch_size": 16,
    "public_size": 32,
    "train_samples": dict.fromkeys(("MLC", "IC100", "IC10"), 18),
}
# A user who is knowing differs from others before the first round alone; they differ in what they
# send, which the first test looks at.
TWO = ("shuffled", "knowing")
SEEN = {
    "passive": "",
    "constant": "look constant",
    "shuffled": "look unrelated to the other users'",
    "random": "look unrelated to the other users'",
    "negated": "are turned away from the other users'",
    "knowing": "look unrelated to the other users'",
}


def trained(settings, name, **given):
    """The clients after two rounds."""
    s = settings(algorithm=name, others=2, rounds=2, **given)
    federation, algorithm = build(s), algorithms.get(name)(s)
    algorithm.begin(federation)
    for round in range(2):
        algorithm.local_update(federation, round)
        algorithm.communicate(federation, round)
    return federation.clients


def weights(client):
    return torch.cat([p.flatten() for p in client.model.trainable_state().values()])


@pytest.mark.parametrize("lie", get_args(Lie))
def test_what_each_sends_is_what_a_server_looks_for(lie):
    """Beside three honest users of one space."""
    common = torch.randn(3, len(ROWS), 16, generator=torch.Generator().manual_seed(0)) / 4
    common += torch.randn(len(ROWS), 16, generator=torch.Generator().manual_seed(1))
    z = normalize(common, dim=2)
    z = torch.stack([*z, sent_in_place(z[2], ROWS, lie, 0)])
    assert suspicion(dict(zip(MEASURES, measured(z)[:, -1].tolist(), strict=True))) == SEEN[lie]


def test_who_lies_learns_alone_and_the_others_learn_other_things(settings):
    honest, alone = trained(settings, "fedmuscle", **FEW), trained(settings, "local", **FEW)
    number = [client.user.number for client in honest].index(2)
    for lie in ("passive", *TWO):
        hostile = trained(settings, "fedmuscle", hostile={2: lie}, **FEW)
        assert torch.equal(weights(hostile[number]), weights(alone[number])), lie
        assert not any(
            torch.equal(weights(a), weights(b)) for a, b in zip(honest, hostile, strict=True)
        ), lie


def test_only_the_knowing_are_not_honest_before_the_first_round(settings):
    every = [build(settings(hostile=given)).clients for given in ({}, *({2: lie} for lie in TWO))]
    honest, shuffled, knowing = (
        torch.stack([client.do(_RepresentAll()) for client in clients]) for clients in every
    )
    assert torch.equal(honest, shuffled) and not torch.equal(honest, knowing)
    mine = [client.user.number for client in every[0]].index(2)
    r2 = predictability(knowing, torch.arange(knowing.shape[1]))
    others = [n for n in range(len(honest)) if n != mine]
    assert (r2[mine, others] > r2[others, mine] + 0.1).all(), "all others would listen to it"
