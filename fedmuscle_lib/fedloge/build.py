"""Clients and their server in one process: a round, an evaluation, and the state between rounds."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from fedmuscle_lib.fedloge.client import Client
from fedmuscle_lib.fedloge.evaluation import TestSet, finite
from fedmuscle_lib.fedloge.messages import Message
from fedmuscle_lib.fedloge.methods.method import Method, Recipe
from fedmuscle_lib.fedloge.samples import LocalData, Preprocessing, Samples
from fedmuscle_lib.fedloge.server import Server


class Federation:
    """A run in progress, without its settings and files. A client without samples takes no part in training.

    Args:
        method: what the clients do, for a number of classes, a seed and a device.
        clients: training samples of each client, client k's at position k.
        test: the balanced test set.
        local_tests: for each client, the rows of the test set that are its own; clients may share rows.
        groups: classes by the name of their group, such as "head", "middle" and "tail".
        participation: share of the clients in a round.
        recipe: of local training.
        preprocessing: how the network reads the images.

    Attributes:
        method: as given.
        server: with the shared tensors and the ledger of bytes.
        clients: by number, those with training samples or a local test.

    Raises:
        ValueError: the samples of a client or of the test set are of the wrong kind, or no client has any; the message names whose.
    """

    def __init__(
        self,
        method: Method,
        clients: Sequence[Samples],
        test: Samples,
        local_tests: Sequence[Tensor],
        groups: Mapping[str, Sequence[int]],
        *,
        participation: float = 1.0,
        recipe: Recipe = Recipe(),  # noqa: B008 - frozen
        preprocessing: Preprocessing = Preprocessing(),  # noqa: B008 - frozen
    ) -> None:
        if len(clients) != len(local_tests):
            raise ValueError(f"{len(local_tests)} local tests for {len(clients)} clients")
        problem = method.problem
        self.method = method
        self._test = TestSet(test.on(problem.device), problem.classes, groups, preprocessing)
        self._workspace = method.shared().to(problem.device)
        self.clients: dict[int, Client] = {}
        for number, (samples, rows) in enumerate(zip(clients, local_tests, strict=True)):
            samples.check(f"client {number}", problem.classes)
            if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < len(test):
                raise ValueError(f"client {number}: its local test has rows outside the test set's {len(test)}")
            if len(samples) or len(rows):
                data = LocalData(number, samples.on(problem.device), problem.classes, preprocessing, problem.seed)
                self.clients[number] = Client(data, rows.to(problem.device), method, self._workspace, recipe)
        first = {name: tensor.detach().clone() for name, tensor in self._workspace.state_dict().items()}
        trained = [number for number, client in self.clients.items() if len(client.data)]
        self.server = Server(trained, first, participation, (problem.seed,))

    def round(self, round: int) -> float:
        """Do round ``round`` (from 0): the drawn clients train, the server averages. Returns the mean of the clients' losses.

        Raises:
            Diverged: a client's loss or update is not finite; the message names it.
            RefusedMessage: an update can't be averaged; the message names the client.
        """
        drawn = self.server.participants(round)
        for number in drawn:
            update = self.clients[number].train(self.server.send(number, round), round)
            self.server.receive(number, round, update)
        self.server.aggregate()
        return fmean(self.clients[number].loss for number in drawn)

    @torch.no_grad()
    def evaluate(self, round: int) -> list[dict[str, Any]]:
        """Evaluate the global model and every client's own after ``round`` finished rounds; 0 is before the first.

        Nothing is trained by it, and what it hands to the clients is not in the ledger.

        Returns:
            Rows of round, scope ("global" or "personal"), head (the way of predicting), masked (whether classes that are absent from a
            client's local test can't be predicted), group ("all" or a group's name), value (accuracy in per cent) and clients. The global
            model is evaluated on the whole test set, by no client. A personal value is the unweighted mean over the clients whose local
            test has samples of the group; ``clients`` says how many these are.

        Raises:
            Diverged: a model's logits are not finite; the message names whose.
        """
        rows: list[dict[str, Any]] = []

        def add(scope: str, head: str, masked: bool, group: str, value: float, clients: int) -> None:
            columns = {"scope": scope, "head": head, "masked": masked, "group": group, "value": value, "clients": clients}
            rows.append({"round": round, **columns})

        message = Message(self.server.tensors)
        self._workspace.load_state_dict(message.tensors)
        common = self._test.features(self._workspace["backbone"])
        for head, predict in self.method.global_heads(self._workspace).items():
            for group, value in self._test.accuracies(finite("the global model", head, predict(common))).items():
                add("global", head, False, group, value, 0)
        values: dict[tuple[str, bool, str], list[float]] = defaultdict(list)
        for client in self.clients.values():
            if len(client.local_test):
                for scores in client.evaluate(message, round, self._test, common):
                    for group, value in scores.accuracies.items():
                        values[scores.head, scores.masked, group].append(value)
        for (head, masked, group), found in values.items():
            add("personal", head, masked, group, fmean(found), len(found))
        return rows

    def tested(self) -> dict[tuple[str, str], int]:
        """Return the number of test samples by scope and group: of the test set, and of the local tests of all clients."""
        sizes = Counter({("global", group): size for group, size in self._test.sizes().items()})
        for client in self.clients.values():
            sizes.update({("personal", group): size for group, size in self._test.sizes(client.local_test).items()})
        return sizes

    def state(self) -> dict[str, Any]:
        """What rounds change, as tensors and plain containers; what :meth:`restore` takes."""
        return {"server": self.server.state(), "clients": {number: client.state() for number, client in self.clients.items()}}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on as if the rounds had been done here."""
        self.server.restore(state["server"])
        for number, client in self.clients.items():
            client.restore(state["clients"][number])
