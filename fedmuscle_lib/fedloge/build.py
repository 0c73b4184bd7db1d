"""The federation of a run before its first round, and what it does in one: clients and their server
in one process.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from fedmuscle_lib.data.labelled_sets import read
from fedmuscle_lib.data.long_tail import groups, long_tailed
from fedmuscle_lib.data.partition import class_counts, local_tests, partition
from fedmuscle_lib.data.samples import Samples
from fedmuscle_lib.fedloge.client import Client
from fedmuscle_lib.fedloge.evaluation import TestSet, finite
from fedmuscle_lib.fedloge.methods.method import Method, Problem, Recipe
from fedmuscle_lib.fedloge.preprocessing import LocalData, Preprocessing
from fedmuscle_lib.fedloge.server import Server
from fedmuscle_lib.fedloge.settings import Settings


def build(settings: Settings) -> Federation:
    """Read the labelled set, divide it and put clients and server together.

    Raises:
        DataError: the set is missing or damaged; the message names the file.
        ValueError: there are fewer training or test images than the settings need.
    """
    s = settings
    train, test = read(s.data_dir, s.data, s.image_size)
    classes = len(train.classes)
    kept = long_tailed(train.labels, s.imbalance, s.seed)
    shares = [kept[rows] for rows in partition(train.labels[kept], s.clients, s.alpha, s.seed)]
    tests = local_tests(class_counts(train.labels, shares, classes), test.labels, s.seed)
    return Federation(
        s.method(Problem(s.network, classes, s.seed, s.device), s.own_options),
        [train.samples(rows) for rows in shares],
        test.samples(range(len(test))),
        [torch.as_tensor(rows) for rows in tests],
        groups(class_counts(test.labels, tests, classes)),
        participation=s.participation,
        recipe=Recipe(s.lr, s.momentum, s.weight_decay, s.batch_size, s.local_epochs),
        preprocessing=Preprocessing(padding=s.padding, flip=bool(s.flip)),
    )


class Federation:
    """A run in progress, without its settings and files. A client without samples takes no part in
    training.

    Args:
        method: what the clients do, for a number of classes, a seed and a device.
        clients: training samples of each client, client k's at position k.
        test: the balanced test set.
        local_tests: for each client, the rows of the test set that are its own; clients may share
            rows.
        groups: classes by the name of their group, such as "head", "middle" and "tail".
        participation: share of the clients in a round.
        recipe: of local training.
        preprocessing: how training crops and mirrors images.

    Attributes:
        method, groups: as given.
        classes: the classes' names, if the test set has them.
        server: with the shared tensors and the ledger of bytes.
        clients: by number, those with training samples or a local test.
    """

    def __init__(
        self,
        method: Method,
        clients: Sequence[Samples],
        test: Samples,
        local_tests: Sequence[Tensor],
        groups: Mapping[str, Sequence[int]],
        *,
        participation: float,
        recipe: Recipe,
        preprocessing: Preprocessing,
    ) -> None:
        problem = method.problem
        self.method, self.groups, self.classes = method, groups, test.names
        self._test = TestSet(test.to(problem.device), problem.classes, groups)
        self._workspace = method.shared().to(problem.device)
        self.clients: dict[int, Client] = {}
        for number, (samples, rows) in enumerate(zip(clients, local_tests, strict=True)):
            if len(samples) or len(rows):
                data = LocalData(
                    number, samples.to(problem.device), problem.classes, preprocessing, problem.seed
                )
                self.clients[number] = Client(
                    data, rows.to(problem.device), method, self._workspace, recipe
                )
        first = {name: tensor.clone() for name, tensor in self._workspace.state_dict().items()}
        trained = [number for number, client in self.clients.items() if len(client.data)]
        self.server = Server(trained, first, participation, (problem.seed,))

    def round(self, round: int) -> float:
        """Do round ``round`` (from 0): the drawn clients train, the server averages. Returns the
        mean of the clients' losses.

        Raises:
            Diverged: a client's loss or update is not finite; the message names it.
        """
        drawn = self.server.participants(round)
        for number in drawn:
            client = self.clients[number]
            trained = client.train(self.server.send(number, round), round)
            self.server.receive(number, round, trained, len(client.data))
        self.server.aggregate()
        return fmean(self.clients[number].loss for number in drawn)

    @torch.no_grad()
    def evaluate(self, round: int) -> list[dict[str, Any]]:
        """Evaluate the global model and every client's own after ``round`` finished rounds; 0 is
        before the first.

        Nothing is trained by it, and what it hands to the clients is not in the ledger.

        Returns:
            Rows of round, scope ("global" or "personal"), head (the way of predicting), masked
            (whether classes that are absent from a client's local test can't be predicted), group
            ("all" or a group's name), value (accuracy in per cent) and clients. The global model is
            evaluated on the whole test set, by no client. A personal value is the unweighted mean
            over the clients whose local test has samples of the group; ``clients`` says how many
            these are.

        Raises:
            Diverged: a model's logits are not finite; the message names whose.
        """
        self._workspace.load_state_dict(self.server.tensors)
        common = self._test.features(self._workspace["backbone"])
        found: dict[tuple[str, str, bool, str], list[float]] = defaultdict(list)
        for head, predict in self.method.global_heads(self._workspace).items():
            for group, value in self._test.accuracies(
                finite("the global model", head, predict(common))
            ).items():
                found["global", head, False, group].append(value)
        for client in self.clients.values():
            if len(client.local_test):
                for head, masked, group, value in client.evaluate(
                    self.server.tensors, round, self._test, common
                ):
                    found["personal", head, masked, group].append(value)
        names = "scope", "head", "masked", "group"
        return [
            {"round": round}
            | dict(zip(names, cell, strict=True))
            | {"value": fmean(values), "clients": len(values) * (cell[0] == "personal")}
            for cell, values in found.items()
        ]

    def tested(self) -> dict[tuple[str, str], int]:
        """Return the number of test samples by scope and group: of the test set, and of the local
        tests of all clients.
        """
        own = torch.cat([client.local_test for client in self.clients.values()])
        return {
            (scope, group): size
            for scope, rows in (("global", slice(None)), ("personal", own))
            for group, size in self._test.sizes(rows).items()
        }
