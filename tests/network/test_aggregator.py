"""A federation over loopback and TLS: the numbers of one process, whoever is missing, and whatever the network does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from toys import USERS, Net, ToyParty, in_one_process

from fedmuscle_lib.core.errors import RefusedMessage
from fedmuscle_lib.network.aggregator import Waited


def assert_same(net: Net, parties: list[ToyParty], missing: dict[int, tuple[int, ...]] | None = None) -> None:
    toys, losses = in_one_process(net.file.agreed(), missing)
    for party, toy in zip(parties, toys, strict=True):
        assert torch.equal(party._clients[0].table, toy.table)
    assert net.history.table("rounds").alignment_loss.tolist() == losses


@pytest.mark.parametrize("terms", [{}, {"reply": "factored"}, {"algorithm": "gramian", "order": "alignment_first"}, {"robust": 1}])
def test_the_numbers_are_those_of_one_process(net: Callable[..., Net], terms: dict[str, Any]) -> None:
    net = net(terms=terms | {"rounds": 2})
    parties = [net.toy(user, limits={"replies": ["gradient", "factored"], "report": user == 2}) for user in USERS]
    net.history = net.federate(parties)
    assert_same(net, parties)
    users = net.history.table("users")
    assert users.took_part.all() and users.uplink_bytes.eq(64 * 8 * 4).all()
    assert users[users.value.notna()].user.eq(2).all() and users.value.notna().sum() == 2
    assert (net.folder / "server/users.csv").read_text().count("\n") == 7
