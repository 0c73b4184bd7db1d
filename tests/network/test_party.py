"""Parties with foundation models: the numbers of one process, to the bit."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
import torch
from toys import direct

from fedmuscle_lib.core.torch_state import fixed_state
from fedmuscle_lib.fedmuscle.rounds import Rounds
from fedmuscle_lib.network import rounds as network
from fedmuscle_lib.network.history import History
from fedmuscle_lib.network.party import Party


def equal(one: Any, other: Any) -> bool:
    """Whether two states are equal to the bit."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(equal, one, other))
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other


def in_one_process(settings) -> tuple[Rounds, dict[str, pd.DataFrame]]:
    """A run's rounds, and its tables."""
    with fixed_state(1):
        rounds = Rounds(settings)
        for round in range(settings.rounds):
            rounds.round(round)
    return rounds, {name: pd.DataFrame(rows) for name, rows in rounds.rows.items()}


@pytest.mark.parametrize(
    "users",
    [(5, 6), pytest.param((1, 2, 3, 4, 5, 6), marks=pytest.mark.slow)],
    ids=["two", "setup1"],
)
def test_mini_gives_the_numbers_of_one_process(net, settings, users):
    """Weights, optimisers, metrics, losses and bytes; also of a party that is killed."""
    ours = settings(rounds=2, users=users, others=min(3, len(users) - 1))
    rounds, tables = in_one_process(ours)
    net = net(users=users, rounds=2, proj_dim=ours.proj_dim, others=ours.others)

    def party(user) -> Party:
        file = net.party_file(
            user.number,
            task=user.task,
            client=user.client,
            train_samples=user.train_samples,
            model=net.data / "models" / ours.backbones[user.model],
            compare=user.number == 6,
            report=True,
            settings={"profile": "mini", "local_epochs": 1, "evaluate_every": 1},
        )
        return Party(file, user.number, net.told.append)

    parties = {user.number: party(user) for user in ours.members}
    history, asked = History(net.file.folder, net.file.terms()), []

    def ask(questions):
        asked.append(questions)
        if len(asked) == 6:  # in the second round
            parties[5] = party(ours.members[-2])
        return direct(parties)(questions)

    network.Rounds(net.file.terms(), users, ask, history, net.told.append).run()
    for client in rounds.federation.clients:
        assert equal(parties[client.user.number]._clients[0].state(), client.state())
    reported, after = (
        pd.DataFrame(history.users),
        tables["metrics"].query("phase == 'after_alignment'"),
    )
    assert reported.value.tolist() == after.value.tolist()
    assert reported.metric.tolist() == after.metric.tolist()
    for name in ("uplink_bytes", "downlink_bytes"):
        assert reported[name].tolist() == tables["costs"][name].tolist()
    own = pd.read_csv(net.folder / "party_6/history.csv")
    losses = tables["losses"].query("user == 6")
    assert own.local_loss.tolist() == losses.local.tolist()
    assert own.alignment_loss.tolist() == losses.alignment.tolist()
    alone = in_one_process(settings(rounds=2, users=(6,), algorithm="local", others=1))[1]
    beside = alone["metrics"].query("phase == 'after_alignment'").value
    assert reported[reported.user == 6].local.tolist() == beside.tolist()
