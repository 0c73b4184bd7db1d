"""Parties with foundation models: the numbers of one process, to the bit."""

from __future__ import annotations

import threading
from typing import Any

import pandas as pd
import pytest
import torch

from fedmuscle_lib.core.torch_state import fixed_state
from fedmuscle_lib.fedmuscle.rounds import Rounds
from fedmuscle_lib.network.party import Party
from fedmuscle_lib.network.terms import Terms

_ONE_AT_A_TIME = (
    threading.Lock()
)  # transformers sets the type of new tensors while it loads a model


def equal(one: Any, other: Any) -> bool:
    """Whether two states are equal to the bit."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(equal, one, other))
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other


class InAThread(Party):
    """A party that shares its process with others."""

    def _begin(self, terms: Terms) -> None:
        with _ONE_AT_A_TIME:
            super()._begin(terms)


@pytest.mark.parametrize(
    "users",
    [(5, 6), pytest.param((1, 2, 3, 4, 5, 6), marks=pytest.mark.slow)],
    ids=["two", "setup1"],
)
def test_mini_gives_the_numbers_of_one_process(net, settings, users):
    """Weights, optimisers, metrics, losses and bytes."""
    given = {"rounds": 2, "users": users, "others": min(3, len(users) - 1)}
    ours = settings(**given)
    with fixed_state(1):
        rounds = Rounds(ours)
        for round in range(ours.rounds):
            rounds.round(round)
    net = net(
        users=users, terms={"rounds": ours.rounds, "proj_dim": ours.proj_dim, "others": ours.others}
    )
    parties = []
    for user in ours.members:
        own: dict[str, Any] = {"profile": "mini", "local_epochs": 1, "evaluate_every": 1}
        about = {
            "task": user.task,
            "client": user.client,
            "train_samples": user.train_samples,
            "limits": {"report": True},
        }
        model = net.data / "models" / ours.backbones[user.model]
        compare = user.number == 6
        file = net.party_file(user.number, settings=own, model=model, compare=compare, **about)
        parties.append(InAThread(file, net.told.append))
    history = net.federate(parties)

    for party, client in zip(parties, rounds.federation.clients, strict=True):
        assert equal(party._clients[0].state(), client.state())
    of_rounds = {name: pd.DataFrame(rounds.rows[name]) for name in ("metrics", "costs", "losses")}
    after = of_rounds["metrics"].query("phase == 'after_alignment'")
    reported = history.table("users")
    assert (
        reported.value.tolist() == after.value.tolist()
        and reported.metric.tolist() == after.metric.tolist()
    )
    for name in ("uplink_bytes", "downlink_bytes"):
        assert reported[name].tolist() == of_rounds["costs"][name].tolist()
    own = pd.read_csv(net.folder / f"party_{users[-1]}/history.csv")
    losses = of_rounds["losses"].query(f"user == {users[-1]}")
    assert (
        own.local_loss.tolist() == losses.local.tolist()
        and own.alignment_loss.tolist() == losses.alignment.tolist()
    )
    alone = settings(rounds=2, users=(6,), algorithm="local", others=1)
    with fixed_state(1):
        local = Rounds(alone)
        for round in range(alone.rounds):
            local.round(round)
    beside = (
        pd.DataFrame(local.rows["metrics"]).query("user == 6 and phase == 'after_alignment'").value
    )
    assert reported[reported.user == 6].local.tolist() == beside.tolist()
