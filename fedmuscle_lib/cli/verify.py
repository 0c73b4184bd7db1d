"""``verify``: shipped runs beside what this code computes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from fedmuscle_lib.cli.options import Profile
from fedmuscle_lib.core.command_line import DONE, FAILURE
from fedmuscle_lib.core.notebooks import FIGURES
from fedmuscle_lib.runs import History, Store, named, run, stored, system_of
from fedmuscle_lib.runs.settings import parse
from fedmuscle_lib.runs.store import ARCHIVE

SAMPLES = 10  # of an evaluation set that may be judged otherwise on another kind of machine
_SAME = ("processor", "torch", "device", "rounding")  # where these agree, so do all roundings


def command(
    sample: Annotated[int, typer.Option(min=1, help="How many runs, drawn at random.")],
    seed: Annotated[
        int | None, typer.Option(help="Of the draw; another one every time by default.")
    ] = None,
    profile: Profile = "mini",
    data_dir: Annotated[
        Path | None, typer.Option(help="Where the profile's data lie, if not in its usual place.")
    ] = None,
    models_path: Annotated[
        Path | None, typer.Option(help="Where its checkpoints lie, if not in their usual place.")
    ] = None,
) -> None:
    """Compute some of the shipped runs again and compare every metric of every round. Exit code 1
    says that one differs.
    """
    archive = FIGURES / profile / ARCHIVE
    places = {"data_dir": data_dir, "models_path": models_path}
    with TemporaryDirectory() as empty:
        shipped = Store(Path(empty), (archive,))
        known = list(found(shipped, {name: path for name, path in places.items() if path}))
    if not known:
        raise ValueError(f"{archive}: no run of this version and these data")
    seed = random.randrange(2**16) if seed is None else seed
    drawn = random.Random(seed).sample(known, min(sample, len(known)))
    print(f"{len(drawn)} of {len(known)} shipped runs, drawn with --seed {seed}")
    code = DONE
    for history in drawn:
        largest, differences = verify(history)
        verdict = f"within the tolerance, by {largest:.3g} at most" if largest else "equal"
        if differences:
            verdict, code = "; ".join(["differs", *differences]), FAILURE
        print(f"{history.provenance['address']} {history.settings.title}: {verdict}", flush=True)
    raise typer.Exit(code)


def found(shipped: Store, places: dict[str, Path]) -> Iterator[History]:
    """The shipped runs that their settings still lead to, in the order of their addresses."""
    for entry in shipped.entries():
        with suppress(ValueError):  # settings or a system that there are no more
            facts = entry.facts()
            kind = named(facts["system"]).settings
            # a run may name a setting that there is no more
            given = facts["settings"] | places
            known = {name: value for name, value in given.items() if name in kind.model_fields}
            history = stored(parse(kind, known), shipped)
            if history and history.provenance["address"] == entry.address:
                yield history


def verify(history: History) -> tuple[float, list[str]]:
    """Compute a run again, with no store but an empty one, and compare every metric of every round.

    On the same processor, torch and device, and with the same ``versions.ROUNDING``, the two are
    equal, since every draw is seeded and every sum has its order. Elsewhere kernels round
    differently, training amplifies it, and samples near a decision boundary are judged otherwise at
    the end. So the tolerance is counted in evaluation samples: k of n are 100 k / n points of a
    metric in per cent, and a share k / n of a perplexity. A system says what n is
    (``System.per_sample``): FedMuscle's user has an evaluation set; in FedLoGe's system n is the
    group's samples in the test set or, for clients' own models, in all local tests. Measured on
    `mini`, seed 0, with AVX2 kernels in place of AVX-512 ones: in twenty rounds local training,
    FedMuscle and CoFED moved no user's metric by one sample (0.16 points at most); pseudo-labeling,
    where a threshold decides what is learned, moved one by six (1.21 points). In thirty rounds
    FedLoGe moved an accuracy by two samples at most.

    Args:
        history: the shipped run.

    Returns:
        The largest difference of a metric in its unit, and differences above the tolerance as
        sentences.
    """
    with TemporaryDirectory() as folder:
        again = run(history.settings, store=Store(Path(folder)))
    alike = all(history.provenance.get(name) == again.provenance.get(name) for name in _SAME)
    samples = 0 if alike else SAMPLES
    per_sample = system_of(history.settings).per_sample(history.settings, history.metrics)
    key = [name for name in history.metrics if name != "value"]
    both = history.metrics.assign(allowed=samples * per_sample).merge(
        again.metrics, on=key, how="outer", suffixes=("_there", "_here")
    )
    apart = (both.value_there - both.value_here).abs()
    wrong = both[~(apart <= both.allowed)]  # a missing row is NaN, and not within any tolerance
    return float(apart.max()), [
        f"{', '.join(f'{name} {row[name]}' for name in key)}: {row['value_there']:.6g} there,"
        f" {row['value_here']:.6g} here"
        for row in wrong.to_dict("records")
    ]
