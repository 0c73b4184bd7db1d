"""Fingerprints: what short runs of all that is shipped give, by which a changed arithmetic is
noticed.

``python tests/fingerprints.py`` records them in ``tests/recorded/<system>.json``, and the modules
that they guard in ``fedmuscle_lib/core/fingerprinted.txt``, after a version was raised or an
algorithm was added.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from fedmuscle_lib.core.versions import GUARDED, Versioned, versions
from fedmuscle_lib.creamfl import algorithms as creamfl
from fedmuscle_lib.creamfl.kinds import KINDS
from fedmuscle_lib.fedloge import methods
from fedmuscle_lib.fedmuscle import algorithms
from fedmuscle_lib.fedmuscle.build import checkpoint_of
from fedmuscle_lib.models import architecture_of
from fedmuscle_lib.runs import RunSettings, named, system_of
from fedmuscle_lib.runs.compute import train
from fedmuscle_lib.tasks import TASKS

RECORDED = Path(__file__).with_name("recorded")
FAMILIES = {"fedmuscle": algorithms, "fedloge": methods, "creamfl": creamfl}  # of algorithms
# FedMuscle's: two users of one label space, one alone in its own, and one with MLC; three rounds,
# in which every algorithm but one does all that it does. An epoch is two batches of unequal size.
# FedLoGe's and CreamFL's: part of the clients, of each kind, in each of two rounds.
SHORT: dict[str, dict[str, Any]] = {
    "fedmuscle": {
        "users": (2, 4, 5, 6),
        "others": 2,
        "rounds": 3,
        "local_epochs": 1,
        "public_size": 64,
        "evaluate_every": 3,
        "train_samples": {"MLC": 40, "IC100": 40, "IC10": 40},
    },
    "fedloge": {
        "clients": 5,
        "participation": 0.4,
        "rounds": 2,
        "local_epochs": 1,
        "batch_size": 32,
        "flip": 1,
        "evaluate_every": 2,
        "network": "small_cnn",
    },
    "creamfl": {
        "clients": {"images": 2, "texts": 2, "pairs": 2},
        "participants": 4,
        "rounds": 2,
        "local_epochs": 1,
        "drops": (1,),
        "public_size": 24,
        "test_size": 40,
        "pairs_size": 24,
        "batch_size": 12,
        "labelled_batch": 256,
        "evaluate_every": 2,
        "dim": 16,
    },
}
# The algorithms' own options, whatever a profile tuned, but some that let labels pass after so
# little training, or that are long.
OPTIONS: dict[str, dict[str, Any]] = {
    "fedmuscle": {
        "cofed.margin": 0.05,
        "sage.threshold": 0.3,
        "sage.balanced": True,
        "fedhenn.samples": 16,
    },
    "fedloge": {"fedloge.etf_steps": 200, "fedloge.etf_lr": 1e-3, "fedrep.head_epochs": 1},
    "creamfl": {},
}
LONGER = {"pseudo_labeling": {"rounds": 6}}  # a round for each of its phases
# A user of every kind of task and model, and the states before the last blocks, which are kept.
EVERY_TASK: dict[str, Any] = {
    "algorithm": "fedmuscle",
    "setup": "setup2_generation",
    "users": (6, 7, 9, 10, 11),
    "others": 2,
    "rounds": 1,
    "local_epochs": 1,
    "public_size": 32,
    "public": "flickr30k",
    "train_samples": {"IC10": 40, "SS": 30, "TC": 40, "TG": 40},
    "lora_blocks": "last",
}
TINY_NETWORKS = {
    "server.images": "resnet-tiny",
    "server.texts": "gru-tiny",
    "images.images": "resnet-tiny",
    "texts.texts": "gru-tiny+pie",
    "pairs.images": "resnet-tiny+pie",
    "pairs.texts": "gru-tiny",
}
FROM_SCRATCH: dict[str, Any] = {
    "algorithm": "creamfl",
    "networks": TINY_NETWORKS,
    "image_size": 32,
    "labelled_optimiser": "sgd",
}


def shipped(family: ModuleType) -> dict[str, Any]:
    """The registered classes of a package that lie in its own folder, by name."""
    found = {name: family.get(name) for name in family.names()}
    own = Path(str(family.__file__)).parent
    return {
        name: each
        for name, each in found.items()
        if Path(str(sys.modules[each.__module__].__file__)).parent == own
    }


def runs(system: str, **where: Any) -> dict[str, RunSettings]:
    """The short runs of a system by name; ``where`` says where data and checkpoints are."""
    kind, members = named(system).settings, shipped(FAMILIES[system])
    options: dict[str, Any] = {}
    for each in members.values():
        options |= each.named(each.Options())
    options |= OPTIONS[system]
    common = SHORT[system] | where | {"options": options}
    found = {name: kind(**common | {"algorithm": name} | LONGER.get(name, {})) for name in members}
    if system == "fedmuscle":
        found["tasks"] = kind(**EVERY_TASK | where)
    if system == "creamfl":
        found["scratch"] = kind(**common | FROM_SCRATCH)
    return found


def fingerprint(settings: Any) -> dict[str, Any]:
    """Versions, processor, rounding, losses, metrics and bytes of a short run."""
    record = train(settings)
    every = system_of(settings).key(settings)["versions"] | versions(*_models(settings))
    losses = record.tables["losses"].iloc[:, 2:].astype(object)  # without round and whose they are
    return {
        "versions": {name: every[name].partition(" ")[0] for name in sorted(every)},
        "processor": record.provenance["processor"],
        "rounding": record.provenance["rounding"],
        "losses": losses.where(losses.notna(), None).to_numpy().tolist(),
        "metrics": record.tables["metrics"].value.tolist(),
        "bytes": int(record.tables["costs"].filter(like="_bytes").to_numpy().sum()),
    }


def _models(settings: Any) -> set[type]:
    if settings.system != "fedmuscle":
        return set()
    return {architecture_of(checkpoint_of(settings, user)) for user in settings.members}


def modules(**where: Any) -> list[str]:
    """Modules whose classes the short runs go through."""
    classes: set[type] = {type(task) for task in TASKS.values()} | {*KINDS.values()}
    for family in FAMILIES.values():
        classes |= {*shipped(family).values()}
    for settings in runs("fedmuscle", **where).values():
        classes |= _models(settings)
    return _modules_of(classes)


def _modules_of(classes: Iterable[type]) -> list[str]:
    bases = {base for each in classes for base in each.__mro__ if issubclass(base, Versioned)}
    found = {base.__module__ for base in bases - {Versioned}}
    return sorted(name for name in found if name.startswith("fedmuscle_lib."))


def main() -> None:
    """Record every fingerprint."""
    for system in FAMILIES:
        found = {}
        for name, settings in runs(system).items():
            print(f"{system} {name} ...", flush=True)
            found[name] = fingerprint(settings)
        content = json.dumps({"fingerprints": found}, indent=1)
        (RECORDED / f"{system}.json").write_text(f"{content}\n", encoding="utf8")
    GUARDED.write_text("\n".join(modules()) + "\n", encoding="utf8")


if __name__ == "__main__":
    main()
