"""The seam: a federation of another kind has a store, resumption and an address without a line that
knows it.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pandas as pd
import pytest
import torch

from fedmuscle_lib import Store, run, run_all
from fedmuscle_lib.cli.runs import described
from fedmuscle_lib.runs import (
    Experiment,
    Interrupted,
    RunSettings,
    System,
    Tick,
    stored,
    system,
)
from fedmuscle_lib.runs.address import address_of


class Walk(RunSettings):
    """Walkers who step at random and whose mean place is what they agree on."""

    system, profiles = "walk", {"mini": {}}

    profile: str = "mini"
    seed: int = 0
    rounds: int = 4
    threads: int = 1
    device: str = "cpu"
    walkers: int = 3
    drift: float = 0.0
    limp: float = 0.0

    @property
    def title(self) -> str:
        return f"walk seed {self.seed}"


Walk.model_fields["limp"].json_schema_extra = {"neutral": 0.0}  # a setting that came later


class Walkers:
    """Rounds of walking."""

    def __init__(self, settings: Walk) -> None:
        self.settings, self.places = settings, torch.zeros(settings.walkers)
        self.rows: dict[str, list[dict[str, Any]]] = {name: [] for name in _Walking.tables}

    def round(self, round: int) -> Tick:
        s = self.settings
        generator = torch.Generator().manual_seed(1000 * s.seed + round)
        self.places = self.places + torch.randn(s.walkers, generator=generator) + s.drift - s.limp
        self.rows["metrics"].append({"round": round + 1, "place": float(self.places.mean())})
        self.rows["costs"] += [
            {"round": round + 1, "walker": n, "bytes": 4} for n in range(s.walkers)
        ]
        return Tick(
            s.title, round + 1, s.rounds, s.walkers, metrics=(("place", float(self.places.mean())),)
        )

    def state(self) -> dict[str, Any]:
        return {"places": self.places}

    def restore(self, state: dict[str, Any]) -> None:
        self.places = state["places"]

    def facts(self) -> dict[str, Any]:
        return {"shoes": "none"}


class _Walking(System[Walk]):
    name, settings = "walk", Walk
    tables = {
        "metrics": {"round": int, "place": float},
        "costs": {"round": int, "walker": int, "bytes": int},
        "losses": {"round": int},
        "measures": {"round": int},
    }

    def key(self, settings: Walk) -> dict[str, Any]:
        return {"settings": settings.relevant({"profile", "threads"}), "versions": {"walk": "1"}}

    def inputs(self, settings: Walk) -> dict[str, str]:
        return {}

    def begin(self, settings: Walk) -> Experiment:
        return Walkers(settings)


@pytest.fixture(autouse=True)
def walking(monkeypatch) -> None:
    module = ModuleType("walking")
    module.SYSTEM = _Walking()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "walking", module)
    monkeypatch.setitem(system.SYSTEMS, "walk", "walking")


def test_another_kind_of_federation_is_run_stored_and_read_in_its_own_columns(store):
    ticks = []
    history = run(Walk(), progress=ticks.append, store=store)
    assert (ticks[-1].run, ticks[-1].round, ticks[-1].rounds) == ("walk seed 0", 4, 4)
    assert list(history.metrics.columns) == ["round", "place"] and len(history.costs) == 12
    assert history.final()["round"].tolist() == [4]
    assert history.provenance["system"] == "walk" and history.provenance["shoes"] == "none"
    again = stored(Walk(), store)
    pd.testing.assert_frame_equal(history.metrics, again.metrics, check_exact=True)
    (entry,) = store.entries()
    assert entry.facts()["system"] == "walk" and entry.facts()["settings"]["walkers"] == 3


def test_it_is_resumed_to_the_bit(cut_off_and_resumed):
    cut_off_and_resumed(Walk(seed=1), 2)


def test_its_address_holds_what_it_says_that_it_sees():
    here = address_of(Walk())
    assert here == address_of(Walk(threads=2)) == address_of(Walk(limp=0.0))
    assert here not in {
        address_of(Walk(seed=1)),
        address_of(Walk(drift=0.1)),
        address_of(Walk(limp=0.1)),
    }


def test_a_stored_run_of_a_system_that_there_is_not_counts_as_missing(store, monkeypatch, caplog):
    run(Walk(), progress=str, store=store)
    address = address_of(Walk())
    monkeypatch.delitem(system.SYSTEMS, "walk")
    assert Store(store.root).find(address) is None
    assert "unknown system 'walk'" in caplog.text
    assert described({"profile": "mini", "walkers": 4}, "walk") == "", "and can be listed"


@pytest.mark.parametrize(
    ("cuda", "mps", "name"), [(True, True, "cuda:0"), (False, True, "mps"), (False, False, "cpu")]
)
def test_the_best_device_is_one_before_a_run_has_an_address(monkeypatch, cuda, mps, name):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    assert Walk(device="auto").device == name
    assert address_of(Walk(device="auto")) == address_of(Walk(device=name))


def test_a_listener_hears_of_every_round_that_is_computed(store):
    shown, heard = [], []
    run(Walk(), progress=shown.append, store=store, on_round=heard.append)
    assert heard == shown and [tick.round for tick in heard] == [1, 2, 3, 4]
    assert (
        dict(heard[-1].metrics)["place"] == stored(Walk(), store).metrics.place.iloc[-1]
        and heard[-1].seconds > 0
    )
    run(Walk(), progress=str, store=store, on_round=heard.append)  # it is stored
    assert len(heard) == 4


def test_an_interrupt_among_several_runs_says_what_is_kept_and_the_same_call_goes_on(store):
    def cut(tick):
        if (tick.run, tick.round) == ("walk seed 1", 3):
            raise KeyboardInterrupt

    wanted = [Walk(seed=seed) for seed in range(3)]
    with pytest.raises(
        Interrupted,
        match="1 of 3 runs are stored. Kept of what was begun: walk seed 1, 3 of 4 rounds",
    ):
        run_all(wanted, progress=str, store=store, on_round=cut)
    heard: list[Tick] = []
    run_all(wanted, progress=str, store=store, on_round=heard.append)
    assert [(tick.run, tick.round) for tick in heard] == [
        ("walk seed 1", 4),
        *(("walk seed 2", k) for k in range(1, 5)),
    ]


def test_an_error_of_a_listener_loses_nothing(store, tmp_path, caplog):
    def fail(tick):
        raise OSError("no answer")

    history = run(Walk(), progress=str, store=store, on_round=fail)
    assert "walk seed 0: on_round failed after round 4 (OSError: no answer)" in caplog.text
    assert history.metrics.equals(
        run(Walk(), progress=str, store=Store(tmp_path / "quiet")).metrics
    )
