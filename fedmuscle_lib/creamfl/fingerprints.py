"""The short runs of CreamFL's system (see ``fedmuscle_lib.runs.short_runs``): every algorithm,
every kind of client, both kinds of network.

``python -m fedmuscle_lib.creamfl.fingerprints`` records what they give in
``fedmuscle_lib/creamfl/fingerprints.json``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedmuscle_lib.creamfl import algorithms, kinds
from fedmuscle_lib.creamfl.settings import Settings
from fedmuscle_lib.runs import short_runs

FILE = Path(__file__).with_name("fingerprints.json")
# Two clients of each kind, of whom four take part in each of two rounds; the algorithms' own
# options, whatever a profile has.
_FEW: dict[str, Any] = {
    "clients": {"images": 2, "texts": 2, "pairs": 2},
    "participants": 4,
    "rounds": 2,
    "local_epochs": 1,
    "drops": (1,),
}
_FEW |= {
    "public_size": 24,
    "test_size": 40,
    "pairs_size": 24,
    "batch_size": 12,
    "labelled_batch": 256,
    "evaluate_every": 2,
    "dim": 16,
}
TINY_NETWORKS = {
    "server.images": "resnet-tiny",
    "server.texts": "gru-tiny",
    "images.images": "resnet-tiny",
    "texts.texts": "gru-tiny+pie",
    "pairs.images": "resnet-tiny+pie",
    "pairs.texts": "gru-tiny",
}
_AS_PUBLISHED = {
    "label_order": 1,
    "server_training_mode": 1,
    "augmented_public": 1,
    "labelled_optimiser": "sgd",
}


def runs(**where: Any) -> dict[str, Settings]:
    """The short runs by name; ``where`` are settings that say where data and checkpoints are."""
    few = _FEW | where
    shipped = short_runs.shipped(algorithms)
    own = short_runs.own_options(shipped)
    found = {name: Settings(algorithm=name, options=own, **few) for name in shipped}
    return found | {
        "scratch": Settings(
            algorithm="creamfl",
            options=own,
            networks=TINY_NETWORKS,
            image_size=32,
            **few,
            **_AS_PUBLISHED,
        )
    }


def modules() -> list[str]:
    """Modules whose classes the short runs go through."""
    return short_runs.modules_of(
        [*short_runs.shipped(algorithms).values(), *short_runs.shipped(kinds).values()]
    )


if __name__ == "__main__":
    short_runs.record(FILE, runs(), short_runs.fingerprint, modules())
