"""The server's draws, checks and ledger."""

from __future__ import annotations

from collections import Counter

import pytest
import tiny
import torch

from fedmuscle_lib.core.errors import NotFinite, RefusedMessage


@pytest.fixture
def federation(mini_world):
    return tiny.federation(mini_world)


def test_ten_of_35_are_drawn_uniformly(federation):
    server, draws = federation.server, 2000
    server.clients = dict.fromkeys(range(35), ("images",))
    counts = Counter(number for round in range(draws) for number in server.participants(round, 10))
    assert all(len(set(server.participants(round, 10))) == 10 for round in range(20))
    expected, deviation = draws * 10 / 35, (draws * 10 / 35 * 25 / 35) ** 0.5
    assert set(counts) == set(range(35)) and all(abs(count - expected) < 4 * deviation for count in counts.values())
    pairs = Counter((0 in drawn, 34 in drawn) for drawn in (server.participants(round, 10) for round in range(draws)))
    assert pairs[True, True] / draws == pytest.approx(10 / 35 * 9 / 34, abs=0.025)


def test_every_message_is_counted(federation):
    server, client = federation.server, federation.clients[4]  # with pairs
    received = server.send(4, 0)
    server.receive(4, 0, dict(client.represent()))
    one = 24 * 8 * 4
    assert server.downlink == {(0, 4): 2 * one} and server.uplink == {(0, 4): 2 * one}
    assert set(received) == {"images", "texts"}
    (kept,) = server.collect()
    client.represent()["images"].zero_()
    received["images"].zero_()
    assert kept["images"].norm() > 0 and server.represent()["images"].norm() > 0, "both sides have copies"


def changed(change):
    def apply(own):
        own["images"] = change(own["images"])
        return own

    return apply


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (changed(lambda z: z.fill_(torch.nan)), NotFinite, "client 0 sent a representation that is not finite"),
        (changed(lambda z: z[:-1]), RefusedMessage, r"client 0 sent representations for the public images in round 3 of shape \(23, 8\)"),
        (changed(lambda z: 2 * z), RefusedMessage, "client 0 sent a representation that has norm 2, not 1"),
        (changed(lambda z: z.to(torch.int64)), RefusedMessage, "client 0 sent representations .* as torch.int64"),
        (changed(lambda z: z.tolist()), RefusedMessage, "client 0 sent representations .* as a list"),
        (lambda own: own | {"texts": own["images"]}, RefusedMessage, r"client 0 sent embeddings of \['images', 'texts'\]; \['images'\]"),
        (lambda own: {}, RefusedMessage, r"client 0 sent embeddings of \[\]"),
        (lambda own: own["images"], RefusedMessage, "client 0 sent embeddings as a Tensor"),
    ],
)
def test_a_message_that_can_not_be_used_is_refused_by_name(federation, change, error, message):
    server, own = federation.server, {name: z.clone() for name, z in federation.clients[0].represent().items()}
    server.send(0, 2)
    with pytest.raises(error, match=message):
        server.receive(0, 2, change(own))
    assert not server.uplink
    with pytest.raises(RefusedMessage, match=r"no embeddings from clients \[0\]"):
        server.collect()


def test_who_was_not_asked_or_has_answered_is_refused(federation):
    server, own = federation.server, dict(federation.clients[0].represent())
    with pytest.raises(RefusedMessage, match="client 0 sent embeddings in round 1 that nobody asked it for"):
        server.receive(0, 0, own)
    server.send(0, 0)
    for client, round in ((0, 1), (1, 0), (True, 0), ("0", 0)):
        with pytest.raises(RefusedMessage, match=f"client {client} sent embeddings in round {round + 1} that nobody"):
            server.receive(client, round, own)
    server.receive(0, 0, own)
    with pytest.raises(RefusedMessage, match="client 0 .* that nobody asked it for"):
        server.receive(0, 0, own)
