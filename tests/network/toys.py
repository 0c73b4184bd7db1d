"""A server and parties without a foundation model, and two engines between them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Any

import torch
from processes import eventually
from torch import Tensor
from torch.nn.functional import normalize

from fedmuscle_lib.core.randomness import generator
from fedmuscle_lib.fedmuscle.algorithms import Federation
from fedmuscle_lib.fedmuscle.algorithms.fedmuscle import FedMuscle
from fedmuscle_lib.fedmuscle.server import Server
from fedmuscle_lib.muscle.wire import GradientReply
from fedmuscle_lib.network import join
from fedmuscle_lib.network.history import History
from fedmuscle_lib.network.party import Party
from fedmuscle_lib.network.rounds import Ask
from fedmuscle_lib.network.server import serve
from fedmuscle_lib.network.terms import PartyFile, ServerFile, Terms
from fedmuscle_lib.runs.settings import parse
from fedmuscle_lib.runs.store import unpacked

USERS = (1, 2, 3)


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
        draws = generator("fit", self.user.number, self.epochs)
        with torch.no_grad():
            self.table += 0.1 * torch.randn(self.table.shape, generator=draws)

    def represent(self, rows: Tensor) -> Tensor:
        self._z = normalize(self.table[rows], dim=1)
        return self._z.detach()

    def align(self, reply: GradientReply) -> float:
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
    """A party with a :class:`Toy`."""

    def _build(self, terms: Terms) -> None:
        self._settings = SimpleNamespace(
            threads=1, device="cpu", rounds=terms.rounds, evaluates=lambda round: True
        )
        self._local = SimpleNamespace(local_phase=lambda client, round: client.fit())
        self._clients = [Toy(self.user, terms)]


def in_one_process(
    terms: Terms, gone: Callable[[int, int, int], bool] = lambda user, round, batch: False
) -> tuple[list[Toy], list[float]]:
    """Toys after all rounds without a network, and each round's alignment loss.

    Args:
        gone: whether a user takes no part in a batch of a round; -1 is local training. Of a round
            that it does not end it keeps nothing.
    """
    toys, losses, algorithm = [Toy(user, terms) for user in USERS], [], FedMuscle(terms)
    for round in range(terms.rounds):
        of_round, before = [], [toy.state() for toy in toys]
        there = [toy for toy in toys if not gone(toy.user.number, round, -1)]
        for toy in there:
            toy.fit()
        for batch, rows in algorithm.public_batches(round):
            there = [toy for toy in there if not gone(toy.user.number, round, batch.position)]
            users = [toy.user.number for toy in there]
            server = Server(users, terms.others, terms.proj_dim, (terms.seed,))
            of_round += algorithm.align(Federation(there, server), batch, rows)
        for toy, state in zip(toys, before, strict=True):
            if toy not in there:
                toy.restore(state)
        losses.append(fmean(of_round))
    return toys, losses


def direct(parties: Mapping[int, Party]) -> Ask:
    """An engine without a network."""
    return lambda questions: {user: parties[user].answer(questions[user]) for user in questions}


class Net:
    """A server's and parties' files in a folder, and what runs of them."""

    def __init__(
        self, folder: Path, keys: Path, data: Path, /, users: Sequence[int] = USERS, **given: Any
    ) -> None:
        own: dict[str, Any] = {
            "folder": folder / "server",
            "users": users,
            "certificate": keys / "server.pem",
            "root": keys / "root.pem",
            "public": data / "MLC_setup/public_Pascal",
            "rounds": 3,
            "others": 2,
            "public_size": 64,
            "proj_dim": 8,
            "wait": 300,
        }
        self.file = parse(ServerFile, own | given)
        self.folder, self.keys, self.data, self.told = folder, keys, data, list[str]()

    def party_file(self, user: int, **given: Any) -> PartyFile:
        own = {
            "server": "127.0.0.1:1",
            "certificate": self.keys / f"user_{user}.pem",
            "root": self.keys / "root.pem",
            "state": self.folder / f"party_{user}",
            "data": self.data,
            "task": "IC10",
            "train_samples": 50,
            "model": self.data / "models/vit-tiny",
            "compare": False,
            "wait": 120,
        }
        return parse(PartyFile, own | given)

    def toy(self, user: int, **given: Any) -> ToyParty:
        return ToyParty(self.party_file(user, **given), user, self.told.append)

    def toys(self, **given: Any) -> dict[int, ToyParty]:
        return {user: self.toy(user, **given) for user in self.file.users}

    @property
    def address(self) -> str:
        return (self.file.folder / "address").read_text()

    @contextmanager
    def serving(self) -> Iterator[Future[History]]:
        """The server in a thread; leaves when it is done."""
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(serve, self.file, self.told.append)
            eventually(lambda: future.done() or (self.file.folder / "address").exists())
            yield future

    def federate(self, parties: Mapping[int, Party], address: str = "") -> History:
        """All rounds with these parties over gRPC, a thread each."""
        with self.serving() as served, ThreadPoolExecutor(len(parties)) as pool:
            futures = [
                pool.submit(self.join, party, address or self.address) for party in parties.values()
            ]
            history = served.result()
            for future in futures:
                future.result()
            return history

    def join(self, party: Party, address: str) -> None:
        """A party that calls a server there."""
        party.file = party.file.model_copy(update={"server": address})
        join.take_part(party, self.told.append)


def assert_same(
    parties: Mapping[int, Party],
    history: History,
    terms: Terms,
    gone: Callable[[int, int, int], bool] = lambda user, round, batch: False,
) -> None:
    """Whether losses and weights are those of one process, to the bit."""
    toys, losses = in_one_process(terms, gone)
    for toy in toys:
        assert torch.equal(parties[toy.user.number]._clients[0].table, toy.table)
    assert [row["alignment_loss"] for row in history.rounds] == losses


def slowly(party: Party) -> Party:
    """A party whose rounds last long enough to be killed in."""
    answer = party.answer
    party.answer = lambda question: time.sleep(0.05) or answer(question)  # type: ignore[method-assign]
    return party


def serve_alone(net: Net) -> None:
    """A server as a process of its own."""
    serve(net.file)


def join_alone(net: Net, user: int) -> None:
    """A party as a process of its own."""
    net.join(slowly(net.toy(user)), net.address)


def tables_of(net: Net) -> list[Tensor]:
    """What the parties' last checkpoints hold."""
    paths = [net.folder / f"party_{user}/checkpoint.pt" for user in USERS]
    return [unpacked(path.read_bytes())["clients"][0]["table"] for path in paths]
