"""Server and parties over TLS: a bad network, killed processes, and who may not join."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from processes import alive, eventually
from relay import relay
from toys import USERS, assert_same, in_one_process, join_alone, serve_alone, tables_of

from fedmuscle_lib.core.errors import DataError, RefusedMessage
from fedmuscle_lib.network import certificates, join, server
from fedmuscle_lib.network.history import History
from fedmuscle_lib.network.rounds import Rounds


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch) -> None:
    monkeypatch.setattr(join, "PAUSE", 0.05)


def breaks():
    """A connection that breaks after every 5,000 bytes, three times."""
    at = [5000, 10_000, 15_000]
    return lambda total: bool(at) and total > at[0] and bool(at.pop(0))


OVER = threading.Event()


def forgets():
    """A connection through which nothing comes any more, and nobody says so."""
    forgotten = set[threading.Thread]()

    def spoil(total):
        if total > 10_000 and not forgotten:
            forgotten.update(threading.enumerate())
        return threading.current_thread() in forgotten and OVER.wait(120)

    return spoil


@pytest.mark.parametrize(
    "spoil",
    [
        breaks(),
        lambda total: bool(time.sleep(0.02)),
        forgets(),
    ],
    ids=["breaks", "delays", "forgets"],
)
def test_a_bad_network_changes_nothing(net, spoil, monkeypatch):
    monkeypatch.setattr(join, "SPARE", -3.0)  # so that a call has 2 s
    OVER.clear()
    net = net()
    parties = net.toys()
    with (
        net.serving() as served,
        relay(net.address, spoil) as address,
        ThreadPoolExecutor(3) as pool,
    ):
        futures = [
            pool.submit(net.join, party, address if user == 3 else net.address)
            for user, party in parties.items()
        ]
        history = served.result()
        for future in futures:
            future.result()
    OVER.set()
    assert_same(parties, history, net.file.terms())


def test_a_server_that_is_killed_resumes_at_the_same_address(net, monkeypatch):
    asked, read = [], Rounds._read

    def ends(self, *given):
        found = read(self, *given)
        asked.append(given)
        if len(asked) == 6:  # in the second round
            raise InterruptedError("as if it was killed")
        return found

    monkeypatch.setattr(Rounds, "_read", ends)
    net = net()
    parties = net.toys()
    with ThreadPoolExecutor(3) as pool:
        with net.serving() as served:
            futures = [pool.submit(net.join, each, net.address) for each in parties.values()]
            assert isinstance(served.exception(), InterruptedError)
        with net.serving() as served:
            history = served.result()
        for future in futures:
            future.result()
    assert_same(parties, history, net.file.terms())
    monkeypatch.setattr(server, "OVER", 0.1)
    with net.serving() as served:  # after the end it waits for nobody
        assert len(served.result().rounds) == 3


def test_a_party_that_leaves_says_why_and_is_not_waited_for(net, monkeypatch):
    net = net(rounds=2)
    parties = net.toys()

    def fails(batch):
        raise DataError("a disk is full")

    parties[3]._represent = fails
    with pytest.raises(DataError, match="a disk is full"):
        net.federate(parties)
    history = History(net.file.folder, net.file.terms())
    assert [row["why_not"] for row in history.users if row["user"] == 3] == [
        "a disk is full",
        "no answer in time",
    ]


def test_a_user_that_joins_from_elsewhere_ends_its_first_process(net):
    net = net()
    first, second = net.toy(1), net.toy(1)
    with net.serving() as served, ThreadPoolExecutor(4) as pool:
        old = pool.submit(net.join, first, net.address)
        assert eventually(lambda: first._round == 0)
        others = [pool.submit(net.join, net.toy(user), net.address) for user in (2, 3)]
        new = pool.submit(net.join, second, net.address)
        with pytest.raises(RefusedMessage, match="user 1 joined from elsewhere"):
            old.result()
        for future in (new, *others):
            future.result()
        assert len(served.result().rounds) == 3


def test_who_has_no_certificate_of_the_federation_does_not_join(net, tmp_path, monkeypatch):
    monkeypatch.setattr(join, "SPARE", -4.0)  # so that a refusal is told after 1 s
    net = net(wait=5)
    certificates.make(tmp_path / "other", [3], ["127.0.0.1"])
    theirs = net.toy(3, certificate=tmp_path / "other/user_3.pem")
    distrusts = net.toy(3, root=tmp_path / "other/root.pem")
    with net.serving() as served:
        with pytest.raises(RefusedMessage, match="'9' may not join; those who may: users 1, 2, 3"):
            net.join(net.toy(9), net.address)
        with pytest.raises(DataError, match="your root has not signed its certificate"):
            net.join(distrusts, net.address)
        with pytest.raises(DataError, match="its root has not signed your certificate"):
            net.join(theirs, net.address)
        assert served.exception()


# --- processes, and kill -9


@pytest.mark.slow
def test_killed_processes_resume_to_the_bit_and_leave_nothing(net, monkeypatch):
    """The server is killed in the second round and a party in the third."""
    net = net(rounds=4)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["toys"])

    def start(target, *given):
        process = context.Process(target=target, args=(net, *given))
        process.start()
        return process

    def after(round):
        path = net.folder / "server/rounds.csv"
        return path.exists() and path.read_text().count("\n") > round

    def killed(process):
        os.kill(process.pid, signal.SIGKILL)
        process.join()

    processes = [start(serve_alone)]
    assert eventually(lambda: (net.file.folder / "address").exists(), 300)
    processes += [start(join_alone, user) for user in USERS]
    try:
        assert eventually(lambda: after(1), 300)
        killed(processes[0])
        processes[0] = start(serve_alone)
        assert eventually(lambda: after(2), 300)
        killed(processes[3])
        processes[3] = start(join_alone, 3)
        for process in processes:
            process.join(300)
        assert [process.exitcode for process in processes] == [0] * 4
    finally:
        for process in processes:
            process.kill()
    assert not [process.pid for process in processes if alive(process.pid)]
    toys, losses = in_one_process(net.file.terms())
    assert all(map(bool, [t.equal(toy.table) for t, toy in zip(tables_of(net), toys, strict=True)]))
    history = History(net.folder / "server", net.file.terms())
    assert [row["alignment_loss"] for row in history.rounds] == losses
