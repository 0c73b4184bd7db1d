"""``run(settings) -> History``: builds a federation, trains it round by round, and keeps what it measured.

A run is computed once: its result is stored, a second request reads it, and a run that was killed continues after the last round
that it finished, to the same metrics.
"""

from __future__ import annotations

import logging
import os
import platform
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import pandas as pd
import peft
import torch
import transformers
from torch import Tensor, nn

from fedmuscle_lib import algorithms, data, store
from fedmuscle_lib.algorithms import Algorithm, Federation
from fedmuscle_lib.client import Client
from fedmuscle_lib.models import architecture, checkpoint_folder, load_backbone, load_tokenizer, model_type
from fedmuscle_lib.randomness import derived_seed
from fedmuscle_lib.server import Server
from fedmuscle_lib.settings import Settings
from fedmuscle_lib.setups import User
from fedmuscle_lib.tasks import TASKS, direction

Phase = Literal["after_local", "after_alignment"]
PHASES: tuple[Phase, ...] = ("after_local", "after_alignment")
RUNS = Path(os.environ.get("FEDMUSCLE_RUNS", Path(__file__).parents[1] / "runs"))
# where things are, not what they are
_NOT_PART_OF_A_RUN = {"data_dir", "models_path", "root_train_image_folder", "root_val_image_folder"}
_SPLITS = {"test": "test", "validation": "val"}

_log = logging.getLogger("fedmuscle")


@dataclass(frozen=True)
class History:
    """What a run measured.

    Attributes:
        settings: what was asked for.
        metrics: one row per evaluated round (from 1), phase, and user: round, phase, user, model, task, metric, value (per cent).
            Phase "after_local" is after the local updates of the round, "after_alignment" at its end; in the last round the
            latter is the literal end of Algorithm 1.
        costs: one row per user and round: round, user, uplink_bytes, downlink_bytes, flops (of the user's own computation).
        provenance: seconds, peak memory, versions, machine, and each user's metric by an answer that looks at no input.
    """

    settings: Settings
    metrics: pd.DataFrame
    costs: pd.DataFrame
    provenance: dict[str, Any]

    def final(self, phase: Phase = "after_alignment") -> pd.DataFrame:
        """The last round's rows of ``phase``, one a user."""
        rows = self.metrics[self.metrics.phase == phase]
        return rows[rows["round"] == rows["round"].max()].reset_index(drop=True)


def run(settings: Settings, progress: Callable[[str], None] | None = None, wait: bool = True) -> History:
    """Compute or fetch one run.

    Args:
        settings: what to run.
        progress: called with a line of text every round, with Delta so far where there was an evaluation; by default the lines go to
            the logger "fedmuscle".
        wait: for another process that is computing this run; then its result is fetched.

    Raises:
        DataError, OSError: the data or a checkpoint is missing or damaged, or the store can't be written; the message names the file.
        ValueError: a local loss is no longer finite; the message names the user.
        Busy: ``wait`` is false and another process is computing this run.
    """
    entry = entry_of(settings)
    if not entry.done:
        with entry.lock(wait):
            if not entry.done:  # another process may have finished it while this one waited
                with torch_threads(settings.threads):
                    _Training(settings, entry, progress or _log.info).complete()
    return _load(settings, entry)


def stored(settings: Settings) -> History | None:
    """The finished run, if there is one; computes nothing."""
    entry = entry_of(settings)
    return _load(settings, entry) if entry.done else None


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """``count`` torch threads inside; the caller's setting comes back afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _load(settings: Settings, entry: store.Entry) -> History:
    tables, provenance = entry.load("metrics", "costs")
    return History(settings, tables["metrics"], tables["costs"], provenance)


def entry_of(settings: Settings) -> store.Entry:
    """The run's place in the store; settings that differ in nothing that the run looks at have the same."""
    algorithm = algorithms.get(settings.algorithm)
    own = settings.model_dump(mode="json", exclude=_NOT_PART_OF_A_RUN | {"options", "train_samples"} | set(algorithm.ignores))
    own["train_samples"] = settings.own_train_samples
    options = algorithm.options_of(settings).model_dump(mode="json")
    return store.Store(RUNS).entry(settings=own, options=options, inputs=_inputs_digest(settings))


def _inputs_digest(settings: Settings) -> list[str]:
    """Hashes of what the run reads: checkpoints, the users' files and images, and the public set if it is looked at."""
    read = {(_checkpoint(settings, user), "**/*") for user in settings.members}
    for user in settings.members:
        folder = settings.data_dir / TASKS[user.task].folder
        read |= {(folder, f"{split}/client_{user.client}.*") for split in ("train", _SPLITS[settings.evaluate_on])}
        for images in (settings.root_train_image_folder, settings.root_val_image_folder, folder / "images"):
            if images:
                read.add((images, "**/*"))
    if _sees_public(settings):
        read.add((settings.data_dir / data.PUBLIC_SETS[settings.public], "**/*"))
    return [store.files_digest(folder, pattern) for folder, pattern in sorted(read)]


def _sees_public(settings: Settings) -> bool:
    return "public" not in algorithms.get(settings.algorithm).ignores


def build(settings: Settings) -> Federation:
    """The federation of a run before its first round: data read, models initialised from the seed.

    Raises:
        ValueError: a user's checkpoint can't do its task; the message names the user.
    """
    public: dict[data.Encoding, Tensor] = {}  # once for all users who read it alike
    clients = []
    for user in settings.members:
        task = TASKS[user.task]
        checkpoint = _checkpoint(settings, user)
        backbone = load_backbone(checkpoint, settings.device)
        kind = architecture(model_type(checkpoint))
        if task.head not in kind.heads or task.reads != kind.reads:
            raise ValueError(f"user {user.number}: {checkpoint} is a {model_type(checkpoint)}, which can't do {task.name}")
        encoding = _encoding(settings, user, backbone)
        train, evaluation, classes = _local_data(settings, user, encoding)
        if encoding not in public:
            n = settings.public_size if _sees_public(settings) else 0
            known = data.read_public(settings.data_dir / data.PUBLIC_SETS[settings.public], n, encoding) if n else encoding.empty()
            public[encoding] = known.to(settings.device)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derived_seed("weights", settings.seed, user.number))
            model = kind(
                backbone,
                task.n_outputs(classes),
                head=task.head,
                proj_dim=settings.proj_dim,
                rank=settings.rank,
                lora_alpha=settings.lora_alpha,
                lora_targets=settings.lora_targets,
                head_hidden=settings.head_hidden,
                head_on=settings.head_on,
                pooled_stages=settings.pooled_stages,
                precision=settings.precision,
            )
        clients.append(
            Client(
                user,
                task,
                model.to(settings.device),
                classes,
                train.to(settings.device),
                evaluation.to(settings.device),
                public[encoding],
                batch_size=settings.batch_size,
                lr=settings.lr,
                weight_decay=settings.weight_decay,
                address=(settings.seed,),
            )
        )
    numbers = [user.number for user in settings.members]
    return Federation(clients, Server(numbers, settings.others, settings.proj_dim, (settings.seed,)))


def _checkpoint(settings: Settings, user: User) -> Path:
    return checkpoint_folder(settings.models_path, settings.backbones[user.model])


def _encoding(settings: Settings, user: User, backbone: nn.Module) -> data.Encoding:
    """How the user's model reads its inputs."""
    checkpoint = _checkpoint(settings, user)
    if architecture(model_type(checkpoint)).reads == "texts":
        return data.Tokens(load_tokenizer(checkpoint), min(settings.text_length, backbone.config.max_position_embeddings))
    return data.Pixels(settings.mask_size if TASKS[user.task].head == "decoder" else backbone.config.image_size)


def _local_data(settings: Settings, user: User, encoding: data.Encoding) -> tuple[data.Samples, data.Samples, tuple[int, ...]]:
    """The user's D^n, drawn by the seed, its evaluation samples, and the ids of its classes."""
    task, split = TASKS[user.task], _SPLITS[settings.evaluate_on]
    pool, classes = task.read(settings.data_dir, user.client, "train", encoding, settings.root_train_image_folder)
    evaluation, other = task.read(settings.data_dir, user.client, split, encoding, settings.root_val_image_folder)
    if classes != other:
        raise data.DataError(f"user {user.number}: the categories of client_{user.client} differ between train and {split}")
    try:
        return data.draw_local(pool, user.train_samples, settings.seed, user.number), evaluation, classes
    except data.DataError as error:
        raise data.DataError(f"user {user.number}, {user.task} client_{user.client}: {error}") from None


class _Training:
    """A run in progress."""

    def __init__(self, settings: Settings, entry: store.Entry, progress: Callable[[str], None]) -> None:
        self.settings, self.entry, self.progress = settings, entry, progress
        self.federation = build(settings)
        self.algorithm: Algorithm = algorithms.get(settings.algorithm)(settings)
        self.algorithm.begin(self.federation)
        self.metrics: list[dict[str, Any]] = []
        self.costs: list[dict[str, Any]] = []
        self.seconds, self.finished_rounds = 0.0, 0
        if checkpoint := entry.load_checkpoint():
            self._restore(checkpoint)

    def complete(self) -> None:
        """The rounds that are left, then the result."""
        for round in range(self.finished_rounds, self.settings.rounds):
            self._round_began = time.perf_counter()
            self._round(round)
            self.seconds = self._seconds_so_far()
            self.finished_rounds = round + 1
            self.entry.save_checkpoint(self._checkpoint())
        self.entry.save({"metrics": pd.DataFrame(self.metrics), "costs": pd.DataFrame(self.costs)}, self._provenance())

    def _round(self, round: int) -> None:
        flops = [client.meter.total for client in self.federation.clients]
        due = (round + 1) % self.settings.evaluate_every == 0 or round in (0, self.settings.rounds - 1)
        local_loss = self.algorithm.local_update(self.federation, round)
        if due:
            self._evaluate(round, "after_local")
        alignment_loss = self.algorithm.communicate(self.federation, round)
        if due:
            self._evaluate(round, "after_alignment")
        self._report(round, local_loss, alignment_loss, due)
        server = self.federation.server
        for client, before in zip(self.federation.clients, flops, strict=True):
            user = client.user.number
            self.costs.append(
                {
                    "round": round + 1,
                    "user": user,
                    "uplink_bytes": server.uplink[round, user],
                    "downlink_bytes": server.downlink[round, user],
                    "flops": client.meter.total - before,
                }
            )

    def _evaluate(self, round: int, phase: Phase) -> None:
        if phase == "after_alignment" and not self.algorithm.communicates:  # nothing happened since the last evaluation
            n = len(self.federation.clients)
            self.metrics += [row | {"phase": phase} for row in self.metrics[-n:]]
            return
        for client in self.federation.clients:
            user = client.user
            self.metrics.append(
                {
                    "round": round + 1,
                    "phase": phase,
                    "user": user.number,
                    "model": user.model,
                    "task": user.task,
                    "metric": client.task.metric,
                    "value": client.evaluate(),
                }
            )

    def _seconds_so_far(self) -> float:
        return self.seconds + time.perf_counter() - self._round_began

    def _report(self, round: int, local_loss: float, alignment_loss: float | None, evaluated: bool) -> None:
        s = self.settings
        parts = [f"{s.algorithm} {s.public} seed {s.seed}: round {round + 1}/{s.rounds}, {len(self.federation.clients)} users"]
        parts.append(f"local loss {local_loss:.3f}")
        if alignment_loss is not None:
            parts.append(f"alignment loss {alignment_loss:.3f}")
        if evaluated:
            parts.append(self._delta_so_far(round + 1))
        parts.append(f"{self._seconds_so_far():.0f} s")
        self.progress(", ".join(part for part in parts if part))

    def _delta_so_far(self, round: int) -> str:
        """Delta after this round's alignment, against the local run of the same seed after as many rounds, if that has been run."""
        local = stored(self.settings.model_copy(update={"algorithm": "local"}))
        ours = {row["user"]: row for row in self.metrics if row["round"] == round and row["phase"] == "after_alignment"}
        if local is None:
            return "metrics " + " ".join(f"{row['value']:.1f}" for row in ours.values())
        rows = local.metrics.query("round == @round and phase == 'after_alignment'").set_index("user").value
        if set(rows.index) != set(ours) or (rows == 0).any():
            return ""
        gains = [direction(row["metric"]) * (row["value"] / rows[user] - 1) for user, row in ours.items()]
        return f"Delta {100 * sum(gains) / len(gains):+.1f} %"

    def _checkpoint(self) -> dict[str, Any]:
        server = self.federation.server
        return {
            "finished_rounds": self.finished_rounds,
            "seconds": self.seconds,
            "clients": [client.state() for client in self.federation.clients],
            "algorithm": self.algorithm.state(),
            "metrics": self.metrics,
            "costs": self.costs,
            "uplink": dict(server.uplink),
            "downlink": dict(server.downlink),
        }

    def _restore(self, state: dict[str, Any]) -> None:
        for client, saved in zip(self.federation.clients, state["clients"], strict=True):
            client.restore(saved)
        self.algorithm.restore(state["algorithm"])
        self.finished_rounds, self.seconds = state["finished_rounds"], state["seconds"]
        self.metrics, self.costs = state["metrics"], state["costs"]
        self.federation.server.uplink.update(state["uplink"])
        self.federation.server.downlink.update(state["downlink"])
        self.progress(f"{self.settings.algorithm} seed {self.settings.seed}: resumed after round {self.finished_rounds}")

    def _provenance(self) -> dict[str, Any]:
        return {
            "settings": self.settings.model_dump(mode="json", exclude=_NOT_PART_OF_A_RUN),
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": round(self.seconds, 1),
            "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "peft": peft.__version__,
            "machine": f"{platform.machine()}, {os.cpu_count()} cores, {torch.get_num_threads()} torch thread(s)",
            "device": self.settings.device,
            "trivial": {c.user.number: c.task.trivial(c.train.targets, c.evaluation.targets) for c in self.federation.clients},
            "source": store.source_digest(),
        }
