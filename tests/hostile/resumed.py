"""Checkpoints of runs in progress: whatever lies there, the run's tables are those of an
uninterrupted one.
"""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path
from typing import Any

import torch
from hostile.kind import Case, Kind, scrambled
from hostile.stored import warnings_said

from fedmuscle_lib.runs import Damaged, Experiment, Record, RunSettings, Store, System, Tick
from fedmuscle_lib.runs.address import address_of
from fedmuscle_lib.runs.compute import StoringListener
from fedmuscle_lib.runs.loop import Listener, train
from fedmuscle_lib.runs.store import packed
from fedmuscle_lib.runs.system import SYSTEMS

TABLES = ("metrics", "costs", "losses", "measures")


class Settings(RunSettings):
    system, profiles = "hostile", {"mini": {}}
    profile: str = "mini"
    seed: int = 0
    rounds: int = 3
    threads: int = 1
    device: str = "cpu"

    @property
    def title(self) -> str:
        return "hostile seed 0"


class Rounds:
    """Three numbers that are moved in every round; without a check of its own of what is
    restored.
    """

    def __init__(self) -> None:
        self.weights, self.epochs = torch.arange(3.0), 0
        self.rows: dict[str, list[dict[str, Any]]] = {name: [] for name in TABLES}

    def round(self, round: int) -> Tick:
        self.weights, self.epochs = self.weights * 2 + torch.arange(3.0), self.epochs + 1
        self.rows["metrics"].append(
            {"round": round + 1, "value": float(self.weights.sum()) + self.epochs}
        )
        return Tick("hostile", round + 1, 3, 1)

    def state(self) -> dict[str, Any]:
        return {"weights": self.weights, "epochs": self.epochs}

    def restore(self, state: dict[str, Any]) -> None:
        self.weights = torch.zeros(3).copy_(state["weights"])
        self.epochs = int(state["epochs"])

    def facts(self) -> dict[str, Any]:
        return {}


class _Hostile(System[Settings]):
    name, settings = "hostile", Settings
    tables = {name: {"round": int, "value": float} for name in TABLES}

    def key(self, settings: Settings) -> dict[str, Any]:
        return {"settings": settings.recorded(), "versions": {}}

    def inputs(self, settings: Settings) -> dict[str, str]:
        return {}

    def begin(self, settings: Settings) -> Experiment:
        return Rounds()


SYSTEM = _Hostile()
SYSTEMS["hostile"] = "hostile.resumed"


class _Kept(Listener):
    """A listener that keeps the checkpoint of the first round."""

    first: bytes | None = None

    def keep(self, checkpoint: bytes) -> None:
        self.first = self.first or checkpoint


@cache
def _true() -> tuple[Record, bytes]:
    """The record of an uninterrupted run, and its first checkpoint."""
    listener = _Kept()
    record = train(Settings(), listener)
    assert listener.first
    return record, listener.first


def _case(draws: random.Random) -> Case:
    choice, first = draws.random(), _true()[1]
    if choice < 0.1:
        return Case(first)
    if choice < 0.15:
        return Case(draws.choice(("pipe", "device", "folder")), "no file")
    if choice < 0.4:
        content = scrambled(first, draws)
        return Case(content, "" if content == first else "a digest that is wrong")
    state = torch.load(_unsealed(first), weights_only=True)
    wrong: dict[str, dict[str, Any]] = {
        "weights of another shape": {
            "weights": draws.choice(
                (torch.ones(1), torch.ones(4), torch.ones(3, 1), torch.ones(0), torch.ones(2, 3))
            )
        },
        "weights of another type": {
            "weights": (
                state["weights"].to(draws.choice((torch.int32, torch.float64, torch.float16)))
            )
        },
        "weights that are no numbers": {
            "weights": torch.tensor([0.0, draws.choice((torch.nan, torch.inf)), 0.0])
        },
        "no tensor": {"weights": draws.choice((None, [0.0, 0.0, 0.0], "weights", 7))},
        "epochs that are none": {"epochs": draws.choice(("1", 1.5, None, [], "many"))},
        "rounds that are none": {
            "finished_rounds": draws.choice((0, -1, 4, 1.5, "1", None, True, [], 10**30))
        },
        "seconds that are none": {"seconds": draws.choice((-1, torch.inf, torch.nan, "1", None))},
        "rows that are none": {
            "rows": draws.choice((None, [], {}, {"metrics": 7}, {name: ["row"] for name in TABLES}))
        },
        "rows of other rounds": {
            "rows": state["rows"] | {"metrics": [{"round": draws.choice((0, 2, 9)), "value": 1.0}]}
        },
        "another run": {"address": draws.choice(("another", None, 7))},
    }
    why = draws.choice([*wrong, "a part is missing", "no names"])
    if why == "a part is missing":
        state.pop(
            draws.choice(("address", "finished_rounds", "seconds", "rows", "weights", "epochs"))
        )
    return Case(packed([state] if why == "no names" else state | wrong.get(why, {})), why)  # type: ignore[arg-type]


def _unsealed(content: bytes) -> Any:
    import io

    return io.BytesIO(content.partition(b"\n")[2])


def _read(folder: Path) -> None:
    store = Store(folder)
    entry = store.entry(address_of(Settings()))
    for aside in entry.path.parent.glob("*.damaged*"):
        aside.unlink()
    with warnings_said() as said, entry.lock():
        record = train(Settings(), StoringListener(entry, lambda tick: None))
    for name, table in _true()[0].tables.items():
        assert table.equals(record.tables[name]), f"other {name} than those of an uninterrupted run"
    if said:
        assert list(entry.path.parent.glob("checkpoint.pt.damaged")), "a checkpoint is lost"
        raise Damaged(said[0])


KIND = Kind(
    file=f"{address_of(Settings())}/checkpoint.pt",
    prepare=lambda folder: None,
    case=_case,
    read=_read,
    refusals=(Damaged,),
)
