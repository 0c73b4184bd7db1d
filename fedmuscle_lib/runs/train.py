"""A run in progress: rounds, evaluation, checkpoints, and at the end a record. It knows no store: what it has to say goes to a post."""

from __future__ import annotations

import logging
import os
import platform
import time
from datetime import UTC, datetime
from typing import Any, Protocol

import pandas as pd
import peft
import torch
import transformers

from fedmuscle_lib import algorithms, versions
from fedmuscle_lib.algorithms import Algorithm, Phase
from fedmuscle_lib.client import Client
from fedmuscle_lib.data import Words
from fedmuscle_lib.messages import Diverged
from fedmuscle_lib.runs.address import address_of, arithmetic
from fedmuscle_lib.runs.build import build, local_data, torch_threads
from fedmuscle_lib.runs.history import TABLES
from fedmuscle_lib.runs.progress import Tick, name_of
from fedmuscle_lib.runs.store import Damaged, Record, packed, unpacked
from fedmuscle_lib.settings import Settings
from fedmuscle_lib.tasks import TASKS, TextClassification

_log = logging.getLogger("fedmuscle")


class Post(Protocol):
    """To whom a run in progress speaks, in this process or another."""

    def tick(self, tick: Tick) -> None:
        """A round is finished."""

    def keep(self, checkpoint: bytes) -> None:
        """Keep this in place of the last checkpoint."""

    def last(self) -> bytes | None:
        """The last checkpoint, if there is one."""

    def discard(self, why: str) -> None:
        """The last checkpoint is of no use."""


def train(settings: Settings, post: Post) -> Record:
    """Train and evaluate, from the last checkpoint on if there is one.

    Raises:
        DataError, OSError: the data or a checkpoint is missing or damaged; the message names the file.
        Diverged: a local loss, or what a user sends, is no longer finite; the message names the user.
    """
    try:
        with torch_threads(settings.threads):
            return _Training.resumed(settings, post).complete()
    except Diverged as error:
        error.address = str(address_of(settings))
        raise


class _Training:
    def __init__(self, settings: Settings, post: Post) -> None:
        self.settings, self.post = settings, post
        self.address = str(address_of(settings))
        self.federation = build(settings)
        self.algorithm: Algorithm = algorithms.get(settings.algorithm)(settings)
        self.algorithm.begin(self.federation)
        self.done = [client.meter.done for client in self.federation.clients]  # operations that ran, until the last round's end
        for client in self.federation.clients:
            client.prepare(public=not self.algorithm.views_only)
        self.rows: dict[str, list[dict[str, Any]]] = {name: [] for name in TABLES}
        self.seconds, self.finished_rounds = 0.0, 0

    @classmethod
    def resumed(cls, settings: Settings, post: Post) -> _Training:
        """A run with what was finished of it; a checkpoint that is damaged, or another run's, is told of and left out."""
        training = cls(settings, post)
        if (content := post.last()) is None:
            return training
        try:
            training._restore(unpacked(content))
        except (Damaged, KeyError, ValueError, TypeError, RuntimeError, AttributeError) as error:
            post.discard(f"{name_of(settings)}: its checkpoint can't be gone on from ({type(error).__name__}: {error})")
            return cls(settings, post)
        tick = Tick(name_of(settings), training.finished_rounds, settings.rounds, len(training.federation.clients), resumed=True)
        post.tick(tick)
        return training

    def complete(self) -> Record:
        """The rounds that are left, then the result."""
        for round in range(self.finished_rounds, self.settings.rounds):
            self._round_began = time.perf_counter()
            tick = self._round(round)
            self.seconds = self._seconds_so_far()
            self.finished_rounds = round + 1
            self.post.keep(packed(self._checkpoint()))
            self.post.tick(tick)
        tables = {name: pd.DataFrame(self.rows[name], columns=list(columns)) for name, columns in TABLES.items()}
        return Record(tables, self._provenance())

    def _round(self, round: int) -> Tick:
        clients, s = self.federation.clients, self.settings
        flops = [client.meter.total for client in clients]
        due = (round + 1) % s.evaluate_every == 0 or round in (0, s.rounds - 1)
        for phase in self.algorithm.phases():
            if phase == "after_local":
                local_loss = self.algorithm.local_update(self.federation, round)
            else:
                alignment_loss = self.algorithm.communicate(self.federation, round)
            if due:
                self._evaluate(round, phase)
        self._account(round, flops)
        metrics = tuple((row["user"], row["value"]) for row in self.rows["metrics"][-len(clients) :]) if due else ()
        seconds = self._seconds_so_far()
        return Tick(name_of(s), round + 1, s.rounds, len(clients), local_loss, alignment_loss, metrics, seconds)

    def _evaluate(self, round: int, phase: Phase) -> None:
        metrics = self.rows["metrics"]
        if phase == "after_alignment" and not self.algorithm.communicates:  # nothing happened since the last evaluation
            metrics += [row | {"phase": phase} for row in metrics[-len(self.federation.clients) :]]
            return
        for client in self.federation.clients:
            user = client.user
            metrics.append(
                {
                    "round": round + 1,
                    "phase": phase,
                    "user": user.number,
                    "model": user.model,
                    "task": user.task,
                    "metric": client.task.metric,
                    "value": self._value(client, round),
                }
            )

    def _value(self, client: Client, round: int) -> float:
        """The metric of the user's model or, with ``refit``, of a copy of it that trains on its local data for one more phase."""
        if not self.settings.refit:
            return client.evaluate()
        with client.aside():
            self.algorithm.local_phase(client, round)
            return client.evaluate()

    def _account(self, round: int, flops_before: list[int]) -> None:
        """A row a user of what the round cost, of its losses, and of what the server measured."""
        server = self.federation.server
        for client, before, done in zip(self.federation.clients, flops_before, self.done, strict=True):
            user = client.user.number
            own = {"round": round + 1, "user": user}
            bytes_ = {"uplink_bytes": server.uplink[round, user], "downlink_bytes": server.downlink[round, user]}
            flops = {"flops": client.meter.total - before, "flops_done": client.meter.done - done}
            self.rows["costs"].append(own | bytes_ | flops)
            self.rows["losses"].append(own | client.take_losses())
        self.done = [client.meter.done for client in self.federation.clients]
        self.rows["measures"] += [measure | {"round": round + 1} for measure in server.measures if measure["round"] == round]

    def _seconds_so_far(self) -> float:
        return self.seconds + time.perf_counter() - self._round_began

    def _checkpoint(self) -> dict[str, Any]:
        server = self.federation.server
        return {
            "address": self.address,
            "settings": self._asked(),
            "finished_rounds": self.finished_rounds,
            "seconds": self.seconds,
            "clients": [client.state() for client in self.federation.clients],
            "algorithm": self.algorithm.state(),
            "rows": self.rows,
            "uplink": dict(server.uplink),
            "downlink": dict(server.downlink),
            "measures": server.measures,
        }

    def _restore(self, state: dict[str, Any]) -> None:
        if state["address"] != self.address:
            raise ValueError(f"it is of the run {state['address']}, not of {self.address}")
        for client, saved in zip(self.federation.clients, state["clients"], strict=True):
            client.restore(saved)
        self.done = [client.meter.done for client in self.federation.clients]
        self.algorithm.restore(state["algorithm"])
        server = self.federation.server
        server.uplink.update(state["uplink"])
        server.downlink.update(state["downlink"])
        server.measures += state["measures"]
        self.rows = {name: state["rows"][name] for name in TABLES}
        self.finished_rounds, self.seconds = state["finished_rounds"], state["seconds"]

    def _asked(self) -> dict[str, Any]:
        return self.settings.model_dump(mode="json", exclude=_PLACES)

    def _provenance(self) -> dict[str, Any]:
        address = address_of(self.settings)
        return {
            "address": self.address,
            "settings": self._asked(),
            "versions": arithmetic(self.settings),
            "inputs": dict(address.inputs),
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": round(self.seconds, 1),
            "peak_memory_bytes": _peak_memory(),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "peft": peft.__version__,
            "processor": _processor(),
            "machine": f"{platform.machine()}, {os.cpu_count()} cores, {torch.get_num_threads()} torch thread(s)",
            "device": self.settings.device,
            "trivial": {str(c.user.number): c.task.trivial(c.train.targets, c.evaluation.targets) for c in self.federation.clients},
            "tfidf": _by_words(self.settings),
            "source": versions.SOURCE,
        }


def _by_words(settings: Settings) -> dict[str, float]:
    """What the words of its texts alone would give each user who classifies texts."""
    found = {}
    for user in settings.members:
        if isinstance(task := TASKS[user.task], TextClassification):
            train, evaluation, _ = local_data(settings, user, Words())
            found[str(user.number)] = task.by_words(train, evaluation)
    return found


# where things are, not what they are
_PLACES = {"data_dir", "models_path", "root_train_image_folder", "root_val_image_folder"}


def _peak_memory() -> int:
    """Of this process, in bytes."""
    try:
        import resource  # not on Windows
    except ImportError:
        import psutil

        return psutil.Process().memory_info().peak_wset
    unit = 1 if platform.system() == "Darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _processor() -> str:
    """The kind of processor, on which floating-point results depend: its vendor's name, and what torch compiled its kernels for."""
    name = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf8") as file:
            name = next((line.partition(":")[2].strip() for line in file if line.startswith("model name")), name)
    except OSError:
        pass
    return f"{name}, {torch.backends.cpu.get_cpu_capability()}"
