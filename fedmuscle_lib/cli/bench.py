"""``bench``: costs of the loss, of steps and of runs on this machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from fedmuscle_lib import bench, report
from fedmuscle_lib.cli.options import Parameters, named_values
from fedmuscle_lib.core.registry import check_known
from fedmuscle_lib.fedmuscle.settings import Settings, parse
from fedmuscle_lib.runs import Store, run
from fedmuscle_lib.runs.settings import try_device


def _run(settings: Settings) -> None:
    """Two rounds of local training and of FedMuscle, computed anew and one after the other."""
    with TemporaryDirectory() as folder:
        store = Store(Path(folder))  # what is in the usual one was measured some other time
        histories = [
            run(settings.model_copy(update={"algorithm": name, "rounds": 2}), store=store)
            for name in ("local", "fedmuscle")
        ]
    print(report.costs(histories).round(2).to_string(index=False))


BENCHES: dict[str, Callable[[Settings], object]] = {
    "loss": lambda s: bench.bench_loss(dim=s.proj_dim, threads=s.threads, device=s.device),
    "step": bench.bench_step,
    "local": bench.bench_local,
    "run": _run,
}


def command(
    name: Annotated[
        str, typer.Argument(metavar="|".join(BENCHES), help="What to measure on this machine.")
    ],
    parameter: Parameters = None,
) -> None:
    """Print what the loss costs beside the original code's form, what a step of alignment or of
    local training costs beside plainer ones, or what a short run costs.
    """
    check_known("no benchmark", name, BENCHES)
    # the loss is large enough to be shared, the mini models are not
    threads = {"threads": 2} if name == "loss" else {}
    settings = parse(threads | named_values(parameter))
    try_device(settings.device)
    BENCHES[name](settings)
