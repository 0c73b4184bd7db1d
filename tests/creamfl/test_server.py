"""The server's draws, checks and ledger."""

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
    assert set(counts) == set(range(35)) and all(
        abs(count - expected) < 4 * deviation for count in counts.values()
    )


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
    assert kept["images"].norm() > 0 and server.represent()["images"].norm() > 0, (
        "both sides have copies"
    )


def changed(change):
    return lambda own: own | {"images": change(own["images"])}


PLACE = "the public images in round 3"
REFUSED = {
    "nan": (
        changed(lambda z: z.index_fill(0, torch.tensor([3]), torch.nan)),
        f"a representation that is not finite .row 3 of {PLACE}",
    ),
    "twice as long": (changed(lambda z: 2 * z), "a representation that has norm 2, not 1"),
    "fewer rows": (
        changed(lambda z: z[:-1]),
        rf"representations for {PLACE} of shape \(23, 8\); \(24, 8\) is expected",
    ),
    "another kind of client": (
        lambda own: own | {"texts": own["images"]},
        r"embeddings of \['images', 'texts'\]; \['images'\]",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_message_that_can_not_be_used_is_refused_by_name_and_costs_nobody_anything(
    federation, what
):
    server, (own, other) = (
        federation.server,
        (dict(federation.clients[k].represent()) for k in (0, 1)),
    )
    server.send(0, 2)
    server.send(1, 2)
    server.receive(1, 2, other)
    change, words = REFUSED[what]
    with pytest.raises((NotFinite, RefusedMessage), match=f"^client 0 sent {words}"):
        server.receive(0, 2, change(own))
    with pytest.raises(RefusedMessage, match=r"no embeddings from clients \[0\]"):
        server.collect()
    server.receive(0, 2, changed(torch.Tensor.half)(own))
    assert server.uplink[2, 0] == 24 * 8 * 2
    assert [z["images"].dtype for z in server.collect()] == [torch.float32] * 2
    for client, round in ((0, 2), (99, 0)):
        with pytest.raises(RefusedMessage, match=f"^client {client} .* that nobody asked it for$"):
            server.receive(client, round, own)
