"""The server's draws, checks and ledger."""

from collections import Counter

import pytest
import tiny


@pytest.fixture
def federation(mini_world):
    return tiny.federation(mini_world)


def test_ten_of_35_are_drawn_uniformly(federation):
    server, draws = federation.server, 2000
    server.clients = list(range(35))
    counts = Counter(number for round in range(draws) for number in server.participants(round, 10))
    assert all(len(set(server.participants(round, 10))) == 10 for round in range(20))
    expected, deviation = draws * 10 / 35, (draws * 10 / 35 * 25 / 35) ** 0.5
    assert set(counts) == set(range(35)) and all(
        abs(count - expected) < 4 * deviation for count in counts.values()
    )


def test_every_message_is_counted(federation):
    server, client = federation.server, federation.clients[4]  # with pairs
    assert set(server.send(4, 0)) == {"images", "texts"}
    server.receive(4, 0, client.represent())
    assert server.downlink == server.uplink == {(0, 4): 2 * 24 * 8 * 4}
