"""The runs of `mini` that the registered claims need: figures/mini/claims/registered.toml.

    python scripts/registered_runs.py [--first N]

Runs are begun in this order, as many at a time as OMP_NUM_THREADS or the cores allow; those that
are stored are passed over.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import product
from typing import Any

from fedmuscle_lib.fedmuscle.ablations import readings
from fedmuscle_lib.fedmuscle.arms import settings_of
from fedmuscle_lib.fedmuscle.settings import Settings
from fedmuscle_lib.runs import run_all
from fedmuscle_lib.tuning import TEMPERATURES

FRESH = range(3, 10)
DEVELOPMENT = (100, 101)
TABLE1 = ("fedmuscle", "sage", "fedhenn", "cofed", "feddf", "fedrcl", "simclr", "pseudo_labeling")
WORLD = ("local", "fedmuscle", "self", "head_only", "anchored", "local, tuned")


def registered() -> Iterator[Settings | None]:
    """Settings of the runs, the most wanted first; None where an arm serves nobody."""

    def arm(name: str, **given: Any) -> Settings | None:
        return settings_of({"profile": "mini", **given}, name)

    for seed in DEVELOPMENT:  # temperatures of the three objectives, on the validation split
        given: dict[str, Any] = {"seed": seed, "public": "voc", "evaluate_on": "validation"}
        yield arm("local", **given)
        for name, grid in TEMPERATURES.items():
            for own in grid:
                yield arm(name, **own, **given)
    for seed in FRESH:  # Tables 2 and 9
        given = {"setup": "setup2", "public": "flickr30k", "seed": seed}
        apart = {"tau": {"default": 0.2, "SS-TC": 100.0}}
        apart["tau_prime"] = {"default": 0.15, "SS-TC": 100.0}
        yield arm("local", **given)
        yield arm("fedmuscle", **given)
        yield arm("fedmuscle", **apart, **given)
    for seed in FRESH:  # equal and unequal models
        for setup in ("setup1", "setup1_unequal"):
            for name in WORLD:
                yield arm(name, setup=setup, public="voc", seed=seed)
    for seed in range(10):  # a fair CLS world
        for name in WORLD:
            yield arm(name, setup="setup1_cls", public="voc", seed=seed)
    for seed in range(10):  # Table 7, best temperatures; pairwise has its own already
        for public in ("voc", "coco", "cifar100"):
            yield arm("fedmuscle", tau=0.1, tau_prime=0.075, public=public, seed=seed)
            yield arm("gramian", options={"gramian.tau": 0.005}, public=public, seed=seed)
    for seed in FRESH:  # Tables 4, 5 and 6, Figure 8
        everybody = tuple(range(1, 13))
        given = {"setup": "setup_noniid", "public": "voc", "seed": seed}
        yield arm("local", users=everybody, **given)
        for users in ((1, 4, 7, 10), (1, 2, 4, 5, 7, 8, 10, 11), everybody):
            yield arm("fedmuscle", users=users, **given)
        for others in (1, 2, 3, 4, 5):
            yield arm("fedmuscle", public="voc", others=others, seed=seed)
        yield arm("fedmuscle", public="synthetic", public_size=300, seed=seed)
        for name in ("local", "fedmuscle", "self", "head_only"):
            yield arm(name, public="voc", evaluate_every=1, seed=seed)
    for seed in FRESH:  # Table 1
        yield arm("local", seed=seed)
        for public in ("voc", "coco", "cifar100"):
            for name in TABLE1:
                yield arm(name, seed=seed, public=public)
    for seed in FRESH:  # Figure 5
        for size in (8, 64):
            for name in ("local", "fedmuscle"):
                yield arm(name, public="coco", batch_size=size, public_batch_size=None, seed=seed)
    for seed in FRESH:  # Table 8
        given = {"public": "coco", "public_size": 1024, "seed": seed}
        for rounds, cl_epochs in ((1, 1), (1, 5), (10, 1), (25, 1), (25, 5)):
            own = {"rounds": rounds, "local_epochs": 50 // rounds, "cl_epochs": cl_epochs}
            yield arm("local", **own, **given)
            yield arm("fedmuscle", **own, **given)
    for own, seed in product(readings().values(), DEVELOPMENT):  # the choice of readings
        for name in WORLD[:4]:
            yield arm(name, seed=seed, public="voc", evaluate_on="validation", **own)
    for seed in range(10):  # Figure 11 by the literal Algorithm 1, and with 25 rounds
        for rounds, cl_epochs in ((1, 5), (25, 1)):
            given = {"public": "coco", "rounds": rounds, "local_epochs": 50 // rounds, "seed": seed}
            given["cl_epochs"] = cl_epochs
            yield arm("local", **given)
            for d in (64, 128, 256, 512):
                yield arm("fedmuscle", proj_dim=d, **given)
            for tau, tau_prime in ((0.1, 0.075), (0.8, 0.6)):
                yield arm("fedmuscle", tau=tau, tau_prime=tau_prime, **given)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=None, help="as many of the list")
    first = parser.parse_args().first
    run_all([one for one in registered() if one is not None][:first])
