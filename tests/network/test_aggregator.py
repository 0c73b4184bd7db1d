"""A federation over loopback and TLS: the numbers of one process, whoever is missing, and whatever
the network does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from processes import eventually
from toys import USERS, Net, assert_same

from fedmuscle_lib.core.errors import DataError, RefusedMessage
from fedmuscle_lib.network import aggregator, keys
from fedmuscle_lib.network.aggregator import Aggregator, LeftOut, NoSession, Waited, _Seat
from fedmuscle_lib.network.messages import Finished, Join, Next, Ready, Report, Roster
from fedmuscle_lib.network.service import Connection
from fedmuscle_lib.network.terms import Limits


@pytest.mark.parametrize(
    "terms",
    [
        {},
        {"reply": "factored"},
        {"algorithm": "gramian", "order": "alignment_first"},
    ],
)
def test_the_numbers_are_those_of_one_process(net, terms):
    net = net(terms=terms | {"rounds": 2})
    parties = [
        net.toy(user, limits={"replies": ["gradient", "factored"], "report": user == 2})
        for user in USERS
    ]
    net.history = net.federate(parties)
    assert_same(net, parties)
    users = net.history.table("users")
    assert users.took_part.all() and users.uplink_bytes.eq(64 * 8 * 4).all()
    assert users[users.value.notna()].user.eq(2).all() and users.value.notna().sum() == 2
    assert (net.folder / "server/users.csv").read_text().count("\n") == 7


# --- parties that are missing


class Killed(Exception):
    """What ends a party in the middle."""


def killed_in(round: int) -> Callable[[int], None]:
    def before(begun: int) -> None:
        if begun == round:
            raise Killed

    return before


def test_a_party_that_is_missing_in_a_round_comes_back_with_its_checkpoint(net, monkeypatch):
    """Which is what one process computes in which it was missing."""
    gather = Aggregator._gather

    def bounded(self, round):
        if round == 1:  # the bound begins when the others are ready, however slow the machine
            eventually(lambda: self._ready >= {1, 2})
        self.bounds = self.bounds.model_copy(update={"round": 0.1 if round == 1 else 300})
        return gather(self, round)

    monkeypatch.setattr(Aggregator, "_gather", bounded)
    net = net(terms={"rounds": 4})
    one, two, three = (net.toy(user) for user in USERS)
    three.before_round = killed_in(1)
    back, returned = net.toy(3), threading.Event()
    back.before_round = lambda round: returned.set()
    one.before_round = lambda round: returned.wait(300) if round == 2 else None

    def gone_and_back():
        with pytest.raises(Killed):
            three.run()
        while not any(line.startswith("user 1, round 2/4") for line in net.told):
            threading.Event().wait(0.01)
        back.run()

    with net.serving() as served, ThreadPoolExecutor(3) as pool:
        futures = [pool.submit(one.run), pool.submit(two.run), pool.submit(gone_and_back)]
        net.history = served.result()
        for future in futures:
            future.result()
    assert_same(net, [one, two, back], {1: (3,)})
    users = net.history.table("users")
    assert users[~users.took_part][["round", "user", "why_not"]].values.tolist() == [
        [2, 3, "not ready within 0.1 s"]
    ]
    assert "user 3: from its checkpoint after round 1" in net.told


def test_who_falls_silent_is_left_out_of_the_rest_of_the_round(net, monkeypatch):
    represent = _Seat.represent

    def bounded(self, rows):
        if self.user.number == 3 and self.message:  # the others' are there by now
            self.deadline = time.monotonic() + 0.1
        return represent(self, rows)

    monkeypatch.setattr(_Seat, "represent", bounded)
    net = net(terms={"rounds": 1, "others": 1})
    one, two, three = (net.toy(user) for user in USERS)
    exchanged = three._exchanged

    def silent(message, z):
        if message.position:
            raise Killed
        return exchanged(message, z)

    three._exchanged = silent
    with net.serving() as served, ThreadPoolExecutor(3) as pool:
        futures = [pool.submit(party.run) for party in (one, two, three)]
        history = served.result()
    with pytest.raises(Killed):
        futures[2].result()
    users = history.table("users")
    assert (
        users.took_part.all()
        and users.why_not[2]
        == "left in round 1, CL epoch 1, batch 2: no representations came in time"
    )
    assert users.uplink_bytes.tolist() == [2048, 2048, 1024] and users.downlink_bytes.tolist() == [
        2056,
        2056,
        1028,
    ]


def test_the_last_of_a_round_leaves_it_where_the_others_left(net, monkeypatch):
    represent = _Seat.represent

    def bounded(self, rows):
        if self.user.number == 2:
            self.deadline = time.monotonic() + 0.1
        return represent(self, rows)

    def silent(message, z):
        raise Killed

    monkeypatch.setattr(_Seat, "represent", bounded)
    net = net(users=(1, 2), terms={"rounds": 1, "others": 1, "public_size": 128})
    one, two = net.toy(1), net.toy(2)
    two._exchanged, say_finished = silent, one._say_finished

    def late():
        time.sleep(0.5)
        assert not served.done()
        return say_finished()

    one._say_finished = late
    with net.serving() as served, ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(party.run) for party in (one, two)]
        users = served.result().table("users")
    assert futures[0].result() is None and isinstance(futures[1].exception(), Killed)
    assert users.why_not[0] == "left in round 1, CL epoch 1, batch 1: nobody else is left"


def test_a_late_party_hears_that_all_rounds_are_over(net, monkeypatch):
    """The last round went on without it while it trained."""
    gather, trains, goes_on = Aggregator._gather, threading.Event(), threading.Event()

    def bounded(self, round):
        eventually(lambda: self._ready >= {1, 2} and trains.is_set())
        self.bounds = self.bounds.model_copy(update={"start": 0.1})
        return gather(self, round)

    def slow(round):
        trains.set()
        goes_on.wait(300)

    monkeypatch.setattr(Aggregator, "_gather", bounded)
    net = net(terms={"rounds": 1})
    one, two, three = (net.toy(user) for user in USERS)
    three.before_round = slow
    line = two._line

    def heard_of(row):
        """Before user 2 is through, so that the server is still there."""
        three._connection.ask("ready", Ready(round=0), Roster)
        goes_on.set()
        return line(row)

    two._line = heard_of

    with net.serving() as served, ThreadPoolExecutor(3) as pool:
        futures = [pool.submit(party.run) for party in (one, two, three)]
        users = served.result().table("users")
        assert [future.result() for future in futures] == [None] * 3
    assert (
        users.took_part.tolist() == [True, True, False]
        and "user 3: all rounds are over" in net.told
    )


def test_too_few_parties_end_the_server_which_says_for_whom_it_waited(net):
    net = net(bounds={"start": 0.2})
    with (
        net.serving() as served,
        pytest.raises(
            Waited, match="waited 0.2 s for users 1, 2, 3: round 1 needs 2 users and has none"
        ),
    ):
        served.result()


# --- what a party may not send

SPOILT = {
    "a representation that is not finite": lambda message, z: (
        message,
        z.index_fill(0, torch.tensor([3]), torch.nan),
    ),
    r"representations for .* of shape \(31, 8\)": lambda message, z: (message, z[1:]),
    "as torch.int64": lambda message, z: (message, z.long()),
    "norm 1.1": lambda message, z: (message, z * 1.1),
    "for round 1, CL epoch 1, batch 8; the open batch is round 1, CL epoch 1, batch 1": (
        lambda message, z: (
            message.model_copy(update={"position": 7}),
            z,
        )
    ),
}


@pytest.mark.parametrize("why", SPOILT)
def test_what_is_no_representation_is_refused_and_the_others_go_on(net, why):
    net = net(terms={"rounds": 1, "others": 1})
    one, two, three = (net.toy(user) for user in USERS)
    exchanged = three._exchanged
    three._exchanged = lambda message, z: exchanged(*SPOILT[why](message, z))
    with net.serving() as served, ThreadPoolExecutor(3) as pool:
        futures = [pool.submit(party.run) for party in (one, two, three)]
        users = served.result().table("users")
    with pytest.raises(RefusedMessage, match=f"user 3 sent .*{why}"):
        futures[2].result()
    assert futures[0].result() is futures[1].result() is None
    assert (
        users.why_not.isna().tolist() == [True, True, False] and "user 3 sent" in users.why_not[2]
    )
    assert users.uplink_bytes.tolist() == [2048, 2048, 0]


def test_another_message_for_a_batch_is_refused_and_the_same_one_is_answered_again(net):
    net = net(terms={"rounds": 1, "others": 1})
    one, two, three = (net.toy(user) for user in USERS)
    exchanged, again = three._exchanged, []

    def twice(message, z):
        answers = [exchanged(message, z) for _ in range(2)]
        again.append(torch.equal(answers[0].gradient, answers[1].gradient))
        return exchanged(message, z.flip(0)) if message.position else answers[0]

    three._exchanged = twice
    with net.serving() as served, ThreadPoolExecutor(3) as pool:
        futures = [pool.submit(party.run) for party in (one, two, three)]
        history = served.result()
    with pytest.raises(
        RefusedMessage, match="user 3 sent representations twice for round 1, CL epoch 1, batch 2"
    ):
        futures[2].result()
    assert again == [True, True] and history.table("users").uplink_bytes.tolist() == [2048] * 3


def test_a_message_that_the_network_delays_behind_a_later_one_is_no_second_one(net):
    net = net(terms={"rounds": 1, "others": 1})
    one, two, three = (net.toy(user) for user in USERS)
    exchanged, sent = three._exchanged, []

    def delayed(message, z):
        answer = exchanged(message, z)
        sent.append((message, z))
        if message.position:
            with pytest.raises(
                LeftOut, match="user 3 sent round 1, CL epoch 1, batch 1 again, after a later one"
            ):
                exchanged(*sent[0])
        return answer

    three._exchanged = delayed
    net.history = net.federate([one, two, three])
    assert len(sent) == 2 and net.history.table("users").why_not.isna().all()


# --- who may not join


@pytest.mark.parametrize(
    ("user", "given", "why"),
    [
        (3, {"key": "user_9.key"}, "user 3: the key '[0-9a-f]{16}'... is unknown"),
        (9, {}, "user 9 may not join 'toys': its server's file has users 1, 2, 3"),
        (3, {"public": "coco"}, "user 3 has another public set: its images have the SHA-256"),
        (3, {"limits": {"rounds": 2}}, "the server asks for 3 rounds; the limit in your file is 2"),
        (
            3,
            {"limits": {"megabytes": 0.001}},
            "the server asks for 0.006144 megabytes; the limit in your file is 0.001",
        ),
    ],
)
def test_who_may_not_or_will_not_join_is_told_why(net, user, given, why):
    net = net()
    given = {name: net.keys / value if name == "key" else value for name, value in given.items()}
    with net.listening(), pytest.raises(RefusedMessage, match=why):
        net.toy(user, **given).run()


def joining(net: Net, server: Aggregator, user: int) -> Join:
    """A user's answer to what it has to sign."""
    challenge = server.hello(user)
    key, signature = keys.sign(
        keys.private_key(net.keys / f"user_{user}.key"), server.terms.name, user, challenge.nonce
    )
    public = challenge.terms.public["images"]
    return Join(
        user=user,
        nonce=challenge.nonce,
        key=key,
        signature=signature,
        reads="images",
        public=public,
    )


def test_an_answer_that_was_lost_and_a_server_that_was_started_again_are_no_refusal(net):
    net = net()
    server, again = net.aggregator(), net.aggregator()
    message = joining(net, server, 1)
    assert server.user_of(server.join(message).session) == 1
    for each in (server, again):
        with pytest.raises(NoSession):
            each.join(message)


def test_nobody_keeps_a_user_out_by_asking_in_its_name(net):
    net = net()
    server = net.aggregator()
    message = joining(net, server, 1)
    for _ in range(200):
        server.hello(1)
    assert server.user_of(server.join(message).session) == 1


def test_a_party_that_is_killed_while_it_waits_is_waited_for(net, monkeypatch):
    """Not taken for one that is ready, which has ``bounds.batch`` for its local training."""
    monkeypatch.setattr(aggregator, "POLL", 0.05)
    net = net()
    server = net.aggregator()
    server.join(joining(net, server, 3))
    assert server.ready(3, 0).waiting == (1, 2)
    server.join(joining(net, server, 3))
    assert server.ready(1, 0).waiting == (2, 3)


def test_the_line_of_delta_names_users_whose_local_metric_is_near_0(net):
    server = net().aggregator()
    for user, value, local in [(1, 44.0, 40.0), (2, 0.3, 0.1)]:
        server.history.report(0, user, Report(metric="accuracy", value=value, local=local))
        server.history.add("users", round=1, user=user)
        told = server._delta(1)
        assert ("the local metric of user 2 is below 1" in told[0]) == (user == 2), told
    assert told[0].startswith("Delta of round 1: +105.00 % (2 reported; ")


def test_a_user_that_joins_from_elsewhere_ends_its_first_session(net):
    """For good: the two would end each other's sessions for ever."""
    net = net()
    terms = net.file.agreed()
    with (
        net.listening(),
        Connection(net.address, net.keys / "server.pem", Limits(), net.told.append) as first,
    ):
        agree = lambda terms: ("images", terms.public["images"])  # noqa: E731
        assert first.join(1, keys.private_key(net.keys / "user_1.key"), agree) == 0
        with Connection(net.address, net.keys / "server.pem", Limits(), net.told.append) as second:
            assert second.join(1, keys.private_key(net.keys / "user_1.key"), agree) == 0
            with pytest.raises(RefusedMessage, match="the same user joined from elsewhere"):
                first.ask("finished", Finished(round=0), Next)
            assert second.ask("finished", Finished(round=0), Next).round == 0 < terms.rounds


def test_a_server_with_another_certificate_is_not_spoken_to(net, tmp_path):
    net = net()
    keys.make(tmp_path / "other", [], ["127.0.0.1"])
    with (
        net.listening(),
        pytest.raises(
            DataError, match=r"127\.0\.0\.1:\d+: its certificate is not signed by your root"
        ),
    ):
        net.toy(1, root=tmp_path / "other/server.pem").run()


def test_without_tls_on_loopback_the_numbers_are_the_same(net):
    net = net(insecure=True, certificate=None, key=None, terms={"rounds": 1})
    parties = [net.toy(user, root=None, insecure=True) for user in USERS]
    net.history = net.federate(parties)
    assert_same(net, parties)
