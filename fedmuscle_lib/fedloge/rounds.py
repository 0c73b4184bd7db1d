"""A run's federation, put together from its settings and files, and its rounds."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import torch

from fedmuscle_lib.data.labelled_sets import FOLDER, Images, read
from fedmuscle_lib.fedloge.build import Federation
from fedmuscle_lib.fedloge.evaluation import ALL
from fedmuscle_lib.fedloge.long_tail import groups, local_test_counts, local_tests, long_tailed, partition
from fedmuscle_lib.fedloge.methods.method import Problem, Recipe
from fedmuscle_lib.fedloge.samples import Preprocessing, Samples
from fedmuscle_lib.fedloge.settings import Settings
from fedmuscle_lib.runs.address import files_digest
from fedmuscle_lib.runs.system import Tick


def inputs(settings: Settings) -> dict[str, str]:
    """A hash of the set that a run reads, by its folder; empty if it is not there."""
    folder = f"{FOLDER}/{settings.data}"
    return {folder: files_digest(settings.data_dir / folder)}


class Rounds:
    """A federation between two rounds (see ``fedmuscle_lib.runs.system.Experiment``).

    Attributes:
        federation: clients and server.
        classes: the classes' names.
        counts: (clients, classes), training samples of each client and class.
        groups: classes by the name of their group.
    """

    def __init__(self, settings: Settings) -> None:
        s = self.settings = settings
        content = read(s.data_dir, s.data, s.image_size)
        labels = content.train.labels
        kept = long_tailed(labels, s.imbalance, s.seed)
        if s.clients > len(kept):
            raise ValueError(f"clients: {s.clients} are more than there are training samples, {len(kept)}")
        shares = partition(labels[kept], s.clients, s.alpha, s.seed)
        self.classes = content.classes
        self.counts = shares.counts(labels[kept], len(content.classes))
        tested = local_test_counts(self.counts, content.test.labels)
        self.groups = groups(tested)
        self.federation = Federation(
            s.method(Problem(s.network, len(content.classes), s.seed, s.device), s.own_options),
            [_samples(content.train, kept[rows]) for rows in shares.rows],
            _samples(content.test, range(len(content.test))),
            [torch.as_tensor(rows) for rows in local_tests(self.counts, content.test.labels, s.seed)],
            self.groups,
            participation=s.participation,
            recipe=Recipe(s.lr, s.momentum, s.weight_decay, s.batch_size, s.local_epochs),
            preprocessing=Preprocessing(padding=s.padding, flip=bool(s.flip)),
        )
        self.rows: dict[str, list[dict[str, Any]]] = defaultdict(list)

    def round(self, round: int) -> Tick:
        """The drawn clients train, the server averages; evaluate where it is due.

        Raises:
            Diverged: a loss, a tensor or a prediction is not finite; the message names the client.
            RefusedMessage: an update can't be averaged; the message names the client.
        """
        s, server = self.settings, self.federation.server
        mean = self.federation.round(round)
        drawn = server.participants(round)
        for client in drawn:
            own = {"round": round + 1, "client": client}
            bytes_ = {"uplink_bytes": server.uplink[round, client], "downlink_bytes": server.downlink[round, client]}
            self.rows["costs"].append(own | bytes_)
            self.rows["losses"].append(own | {"local": self.federation.clients[client].loss})
        if (round + 1) % s.evaluate_every and round != s.rounds - 1:
            return Tick(s.title, round + 1, s.rounds, len(drawn), mean)
        rows = self.federation.evaluate(round + 1)
        self.rows["metrics"] += rows
        shown = {row["scope"]: row["value"] for row in reversed(rows) if row["group"] == ALL and not row["masked"]}  # the first head's
        return Tick(s.title, round + 1, s.rounds, len(drawn), mean, metrics=tuple(sorted(shown.items())))

    def resumed(self, finished: int) -> Tick:
        return Tick(self.settings.title, finished, self.settings.rounds, len(self.federation.clients), resumed=True)

    def state(self) -> dict[str, Any]:
        return self.federation.state()

    def restore(self, state: dict[str, Any]) -> None:
        self.federation.restore(state)

    def facts(self) -> dict[str, Any]:
        """Training samples of each class, the groups, and who has nothing to train on or to be tested on."""
        clients = self.federation.clients
        return {
            "samples": dict(zip(self.classes, self.counts.sum(0).tolist(), strict=True)),
            "groups": {name: [self.classes[c] for c in members] for name, members in self.groups.items()},
            "without_samples": [k for k in range(self.settings.clients) if not self.counts[k].any()],
            "without_test": [k for k in range(self.settings.clients) if k not in clients or not len(clients[k].local_test)],
        }


def _samples(images: Images, rows: Any) -> Samples:
    chosen = torch.as_tensor(rows)
    return Samples(images.pictures(chosen.numpy()), torch.as_tensor(images.labels)[chosen])
