"""A server on loopback over TLS, and parties without a foundation model."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from fedmuscle_lib.core.randomness import generator
from fedmuscle_lib.fedmuscle import algorithms
from fedmuscle_lib.fedmuscle.algorithms import Federation
from fedmuscle_lib.fedmuscle.messages import Reply
from fedmuscle_lib.fedmuscle.server import Server
from fedmuscle_lib.network import keys as made
from fedmuscle_lib.network.aggregator import Aggregator
from fedmuscle_lib.network.history import History
from fedmuscle_lib.network.party import Party
from fedmuscle_lib.network.serve import serve
from fedmuscle_lib.network.service import listening
from fedmuscle_lib.network.terms import Address, PartyFile, ServerFile, Terms, read

USERS = (1, 2, 3)


def free_port() -> int:
    """A port of loopback that nobody listens at; parties know it before the server does."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


class Toy:
    """A client whose model is a table of one vector for each public sample.

    Local training moves it by what its user's draws say.
    """

    def __init__(self, number: int, terms: Terms) -> None:
        self.user, self.task = SimpleNamespace(number=number), SimpleNamespace(metric="Accuracy")
        self.table = torch.randn(
            terms.public_size, terms.proj_dim, generator=generator("table", number)
        ).requires_grad_()
        self.epochs, self.losses = 0, list[float]()

    def begin_round(self, round: int) -> None:
        pass

    def check_weights(self) -> None:
        pass

    def fit(self) -> None:
        self.epochs += 1
        with torch.no_grad():
            self.table += 0.1 * torch.randn(
                self.table.shape, generator=generator("fit", self.user.number, self.epochs)
            )

    def represent(self, rows: Tensor) -> Tensor:
        self._z = normalize(self.table[rows], dim=1)
        return self._z.detach()

    def align(self, reply: Reply) -> float:
        loss = reply.loss(self._z)
        (gradient,) = torch.autograd.grad(loss, self.table)
        with torch.no_grad():
            self.table -= gradient
        self.losses.append(loss.item())
        return self.losses[-1]

    def evaluate(self) -> float:
        return 50 + float(self.table.detach().mean())

    def take_losses(self) -> dict[str, float]:
        losses, self.losses = self.losses, []
        return {"local": 0.0, "alignment": sum(losses) / max(1, len(losses))}

    def state(self) -> dict[str, Any]:
        return {"table": self.table.detach().clone(), "epochs": self.epochs}

    def restore(self, state: dict[str, Any]) -> None:
        self.table, self.epochs = state["table"].clone().requires_grad_(), state["epochs"]


class ToyParty(Party):
    """A party with a :class:`Toy`; ``before_round`` is called with each round that it begins, from
    0.
    """

    before_round: Callable[[int], object] = staticmethod(lambda round: None)

    def _begin(self, terms: Terms) -> None:
        self._settings = SimpleNamespace(
            threads=1, rounds=terms.rounds, evaluates=lambda round: True
        )
        self._algorithm = algorithms.get(terms.algorithm)(terms)
        self._local = SimpleNamespace(local_phase=lambda client, round: client.fit())
        self._clients = [Toy(self.file.user, terms)]

    def _round(self, round: int) -> int | None:
        self.before_round(round)
        return super()._round(round)


def in_one_process(
    terms: Terms, missing: dict[int, tuple[int, ...]] | None = None
) -> tuple[list[Toy], list[float]]:
    """Toys after all rounds without a network, and each round's alignment loss; ``missing`` users
    by round take no part in it.
    """
    toys, losses = [Toy(user, terms) for user in USERS], []
    algorithm = algorithms.get(terms.algorithm)(terms)
    for round in range(terms.rounds):
        there = [toy for toy in toys if toy.user.number not in (missing or {}).get(round, ())]
        server = Server(
            [toy.user.number for toy in there], terms.others, terms.proj_dim, (terms.seed,)
        )
        for phase in algorithm.phases():
            if phase == "after_alignment":
                losses.append(algorithm.communicate(Federation(there, server), round))
            else:
                for toy in there:
                    toy.fit()
    return toys, losses


class Net:
    """A server's and parties' files in a folder, and what runs of them."""

    def __init__(
        self, folder: Path, keys: Path, data: Path, users: Sequence[int] = USERS, **given: Any
    ) -> None:
        terms = {
            "name": "toys",
            "rounds": 3,
            "others": 2,
            "public_size": 64,
            "proj_dim": 8,
        } | given.pop("terms", {})
        own: dict[str, Any] = {
            "address": f"127.0.0.1:{free_port()}",
            "folder": folder / "server",
            "users": {str(user): keys / f"user_{user}.pub" for user in users},
            "certificate": keys / "server.pem",
            "key": keys / "server.key",
            "public": data / "MLC_setup/public_Pascal",
            "terms": terms,
            "bounds": {"start": 300, "round": 300, "batch": 300},
        }
        self.file = read(ServerFile, None, own | given)
        self.folder, self.keys, self.data, self.told = folder, keys, data, list[str]()
        self.address = self.file.address

    def party_file(self, user: int, address: Address | None = None, **given: Any) -> PartyFile:
        own = {
            "server": str(address or self.address),
            "user": user,
            "key": self.keys / f"user_{user}.key",
            "root": self.keys / "server.pem",
            "state": self.folder / f"party_{user}",
            "data": self.data,
            "task": "IC10",
            "train_samples": 50,
            "model": self.data / "models/vit-tiny",
            "compare": False,
            "limits": {"wait": 120, "seconds": 600} | given.pop("limits", {}),
        }
        return read(PartyFile, None, own | given)

    def toy(self, user: int, **given: Any) -> ToyParty:
        return ToyParty(self.party_file(user, **given), self.told.append)

    @contextmanager
    def serving(self) -> Iterator[Future[History]]:
        """The server in a thread; leaves when it is done."""
        listens = threading.Event()

        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(serve, self.file, self.told.append, lambda _: listens.set())
            future.add_done_callback(lambda _: listens.set())
            listens.wait()
            if future.done():
                future.result()
            yield future

    @contextmanager
    def listening(self) -> Iterator[None]:
        """A server that does no round."""
        with listening(self.aggregator(), self.address, self.file.certificate, self.file.key):
            yield

    def aggregator(self) -> Aggregator:
        """An aggregator that keeps nothing on disk."""
        terms = self.file.agreed()
        public = {user: made.public_key(path) for user, path in self.file.users.items()}
        return Aggregator(terms, public, History(None, terms), self.file.bounds, self.told.append)

    def federate(self, parties: list[Party]) -> History:
        """All rounds with these parties, a thread each."""
        with self.serving() as served, ThreadPoolExecutor(len(parties)) as pool:
            futures = [pool.submit(party.run) for party in parties]
            history = served.result()
            for future in futures:
                future.result()
            return history


def assert_same(
    net: Net, parties: list[ToyParty], missing: dict[int, tuple[int, ...]] | None = None
) -> None:
    toys, losses = in_one_process(net.file.agreed(), missing)
    for party, toy in zip(parties, toys, strict=True):
        assert torch.equal(party._clients[0].table, toy.table)
    assert net.history.table("rounds").alignment_loss.tolist() == losses


class Breaks:
    """Breaks the connection after every so many bytes."""

    def __init__(self, every: int, most: int) -> None:
        self.every, self.left, self.next = every, most, every

    def __call__(self, total: int) -> bool:
        if self.left and total >= self.next:
            self.left, self.next = self.left - 1, total + self.every
            return True
        return False


def serve_alone(net: Net) -> None:
    """A server as a process of its own."""
    with net.serving() as served:
        served.result()


def take_part_alone(net: Net, user: int) -> None:
    """A party as a process of its own, whose rounds last long enough to be killed in."""
    party = net.toy(user)
    party.before_round = lambda round: time.sleep(0.2)
    party.run()
