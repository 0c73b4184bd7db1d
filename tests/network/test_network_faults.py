"""A network that breaks or delays connections, and a server or a party that is killed, change no
number.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pandas as pd
import pytest
import torch
from processes import alive, eventually
from relay import Relay
from toys import USERS, Breaks, Net, in_one_process, serve_alone, take_part_alone

from fedmuscle_lib.network import service
from fedmuscle_lib.network.aggregator import Aggregator
from fedmuscle_lib.network.history import LOST, History, alone
from fedmuscle_lib.network.messages import SERVICE, Challenge, Hello
from fedmuscle_lib.network.service import Connection
from fedmuscle_lib.network.terms import Limits
from fedmuscle_lib.runs.store import unpacked


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch) -> None:
    """Of parties whose calls fail one after the other, such as the last breaks, which are all of
    one message.
    """
    monkeypatch.setattr(service, "_LONGEST_PAUSE", 0.2)


def tables(net: Net) -> list[torch.Tensor]:
    """What the parties' last checkpoints hold."""
    return [
        unpacked((net.folder / f"party_{user}/checkpoint.pt").read_bytes())["clients"][0]["table"]
        for user in USERS
    ]


def assert_same(net: Net) -> None:
    terms = net.file.agreed()
    toys, losses = in_one_process(terms)
    assert all(torch.equal(table, toy.table) for table, toy in zip(tables(net), toys, strict=True))
    history = History(net.folder / "server", terms)
    assert (
        history.table("rounds").alignment_loss.tolist() == losses
        and history.table("users").why_not.isna().all()
    )


@pytest.mark.parametrize(
    "spoil", [Breaks(5000, 3), lambda total: time.sleep(0.02)], ids=["breaks", "delays"]
)
def test_a_bad_network_changes_nothing(net, spoil):
    net = net()
    with Relay(net.address, spoil).running() as relay:
        parties = [net.toy(1), net.toy(2), net.toy(3, address=relay.address)]
        net.federate(parties)
    assert_same(net)
    assert relay.up > 3 * 2 * 1024 and getattr(spoil, "left", 0) == 0


def test_a_connection_that_a_firewall_forgot_is_made_anew(net, monkeypatch):
    """Nothing comes through it any more, and nobody says so."""
    monkeypatch.setattr(service, "POLL", -8)  # so that a call has 2 s
    net, over, forgotten = (
        net(bounds={"start": 300, "round": 60, "batch": 60}),
        threading.Event(),
        set[int](),
    )

    def forgets(total):
        if total > 10_000 and not forgotten:
            forgotten.update(thread.ident or 0 for thread in threading.enumerate())
        return threading.get_ident() in forgotten and over.wait(300)

    with Relay(net.address, forgets).running() as relay:
        net.federate(
            [net.toy(1), net.toy(2), net.toy(3, address=relay.address, limits={"wait": 25})]
        )
        over.set()
    assert_same(net)
    assert forgotten


def test_calls_that_send_no_message_keep_nobody_out(net, monkeypatch):
    """They hold every thread of the server until it ends their connection."""
    monkeypatch.setattr(service, "_AGE", 0.5)
    monkeypatch.setattr(service, "POLL", -8)  # so that a call has 2 s
    net, over = net(), threading.Event()
    root = net.keys / "server.pem"
    with (
        net.listening(),
        grpc.secure_channel(
            str(net.address), grpc.ssl_channel_credentials(root.read_bytes())
        ) as channel,
    ):
        held = [
            channel.stream_unary(f"/{SERVICE}/hello").future(iter(over.wait, True))
            for _ in range(100)
        ]
        with Connection(net.address, root, Limits(wait=60), net.told.append) as honest:
            assert honest.ask("hello", Hello(user=1), Challenge).terms == net.file.agreed()
            assert eventually(lambda: all(call.done() for call in held))
        over.set()


@pytest.mark.parametrize(
    ("at", "times"), [("batch", 1), ("account", 1), ("account", 2), ("kept", 1)]
)
def test_a_server_that_ends_in_a_round_resumes(net, at, times, monkeypatch):
    """Between two batches, after the parties are through with a round that it has not kept, and
    after one of which it has no reports.
    """
    net, ended = net(), list[int]()
    of = Aggregator._align if at == "batch" else Aggregator._account

    def ends(self, round, *rest):
        if round == 1 and len(ended) < times:
            ended.append(round)
            if at == "batch":
                batches = self.algorithm.public_batches
                self.algorithm.public_batches = lambda round: list(batches(round))[:1]
                of(self, round, *rest)
            elif at == "kept":
                monkeypatch.setattr(History, "report", lambda *given: None)
                of(self, round, *rest)
                eventually(lambda: len([line for line in net.told if "round 2/3" in line]) == 4)
                monkeypatch.undo()
            else:
                eventually(
                    lambda: (
                        len([line for line in net.told if "round 2/3" in line]) == 3 * len(ended)
                    )
                )
            raise InterruptedError("as if it was killed")
        return of(self, round, *rest)

    monkeypatch.setattr(Aggregator, of.__name__, ends)
    with ThreadPoolExecutor(3) as pool:
        with net.serving() as served:
            parties = [net.toy(user, limits={"report": True}) for user in USERS]
            futures = [pool.submit(party.run) for party in parties]
            assert isinstance(served.exception(), InterruptedError)
        for _ in range(times - 1):
            with net.serving() as served:
                assert isinstance(served.exception(), InterruptedError)
        with net.serving() as served:
            served.result()
        for future in futures:
            future.result()
    assert_same(net)
    own = [pd.read_csv(net.folder / f"party_{user}/history.csv").alignment_loss for user in USERS]
    assert sum(own).div(3).tolist() == pytest.approx(
        History(net.folder / "server", net.file.agreed()).table("rounds").alignment_loss.tolist()
    )
    assert History(net.folder / "server", net.file.agreed()).table("users").value.notna().all()


def served_while_one_is_started_again(
    net: Net, one: Any, two: Any, killed: Any, again: Any
) -> pd.DataFrame:
    """The history's users of a federation that all end in, of which one party is interrupted and
    started again.
    """

    def and_again() -> None:
        with pytest.raises(InterruptedError):
            killed.run()
        again.run()

    with net.serving() as served, ThreadPoolExecutor(3) as pool:
        futures = [pool.submit(run) for run in (one.run, two.run, and_again)]
        users = served.result().table("users")
        assert [future.result() for future in futures] == [None] * 3
    return users


def test_a_party_that_is_started_again_at_once_takes_part_in_the_next_round(net):
    """The server learns of its end by its new session, in the middle of a round."""
    net = net(terms={"rounds": 2, "others": 1})
    one, two, three, again = (net.toy(user) for user in (1, 2, 3, 3))
    exchanged = three._exchanged

    def ends(message, z):
        if message.position:
            raise InterruptedError("as if it was killed")
        return exchanged(message, z)

    three._exchanged = ends
    users = served_while_one_is_started_again(net, one, two, three, again)
    assert users.took_part.all() and users.why_not.dropna().tolist() == [
        "left in round 1, CL epoch 1, batch 2: user 3 was started again"
    ]


@pytest.mark.parametrize("round", [0, 1])
def test_what_a_party_lost_after_the_last_batch_is_said(net, round):
    net = net(terms={"rounds": 3, "others": 1})
    one, two, three, again = (net.toy(user) for user in (1, 2, 3, 3))
    evaluated, accounted = (
        three._evaluated,
        lambda: any(line.startswith(f"round {round + 1}/3") for line in net.told),
    )

    def ends(at):
        if at == round and eventually(accounted):
            raise InterruptedError("as if it was killed")
        return evaluated(at)

    three._evaluated = ends
    users = served_while_one_is_started_again(net, one, two, three, again)
    why_not = users[users.why_not.notna()][["round", "user", "why_not"]].values.tolist()
    assert users.took_part.all() and why_not == [[round + 1, 3, LOST]]


def test_what_a_party_lost_when_the_server_was_killed_too_is_said(net, monkeypatch):
    """The server kept the round, and the party did not."""
    net, accounted, account = (
        net(terms={"rounds": 2, "others": 1}),
        threading.Event(),
        Aggregator._account,
    )
    one, two, three, again = (net.toy(user) for user in (1, 2, 3, 3))

    def ends(self, round, *rest):
        account(self, round, *rest)
        if not accounted.is_set():
            accounted.set()
            raise InterruptedError("as if it was killed")

    def killed(round):
        accounted.wait(300)
        raise InterruptedError("as if it was killed")

    monkeypatch.setattr(Aggregator, "_account", ends)
    three._evaluated = killed
    with ThreadPoolExecutor(3) as pool:
        with net.serving() as served:
            futures = [pool.submit(party.run) for party in (one, two, three)]
            assert isinstance(served.exception(), InterruptedError) and isinstance(
                futures[2].exception(), InterruptedError
            )
        with net.serving() as served:
            futures[2] = pool.submit(again.run)
            users = served.result().table("users")
        assert [future.result() for future in futures] == [None] * 3
    assert users[users.why_not.notna()][["round", "user", "why_not"]].values.tolist() == [
        [1, 3, LOST]
    ]


def test_a_server_that_is_started_again_after_the_end_waits_for_nobody(net):
    net = net(terms={"rounds": 1})
    net.federate([net.toy(user) for user in USERS])
    began = time.monotonic()
    with net.serving() as served:
        assert served.result().finished == 1
    assert time.monotonic() - began < 60  # of 300 that it may wait


def test_half_files_of_a_killed_process_are_removed(tmp_path):
    for name in (
        ".checkpoint.pt-0123abcd",
        ".state.json-0123abcd",
        ".users.csv-0123abcd",
        "mine.csv",
    ):
        (tmp_path / name).touch()
    with alone(tmp_path):
        assert {path.name for path in tmp_path.iterdir()} == {"lock", "mine.csv"}


# --- processes, and kill -9


@pytest.mark.slow
def test_killed_processes_resume_and_leave_nothing(net, monkeypatch):
    """The server is killed in the second round and a party in the third; both are started again."""
    net = net(terms={"rounds": 4})
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join(filter(None, sys.path))
    )  # of the one process that imports what the others share
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["toys"])

    def start(target, *given):
        process = context.Process(target=target, args=(net, *given))
        process.start()
        return process

    def after(round):
        path = net.folder / "server/rounds.csv"
        return path.exists() and path.read_text().count("\n") > round

    server, parties = start(serve_alone), [start(take_part_alone, user) for user in USERS]
    try:
        assert eventually(lambda: after(1), 300)
        os.kill(server.pid, signal.SIGKILL)
        server.join()
        server = start(serve_alone)
        assert eventually(lambda: after(2), 300)
        os.kill(parties[2].pid, signal.SIGKILL)
        parties[2].join()
        parties[2] = start(take_part_alone, 3)
        for process in (server, *parties):
            process.join(300)
        assert [process.exitcode for process in (server, *parties)] == [0] * 4
    finally:
        for process in (server, *parties):
            process.kill()
    assert not [process.pid for process in (server, *parties) if alive(process.pid)]
    users = History(net.folder / "server", net.file.agreed()).table("users")
    assert users["round"].max() == 4 and users[users.user < 3].took_part.all()
    assert Path(net.folder / "party_3/history.csv").read_text().count("\n") >= 4
