"""``bench``: costs of the loss, of steps and of runs on this machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer

from fedmuscle_lib import bench, report
from fedmuscle_lib.cli.network import needs_grpc
from fedmuscle_lib.cli.options import Parameters, named_values
from fedmuscle_lib.core.registry import check_known
from fedmuscle_lib.fedloge.bench import bench_fedloge
from fedmuscle_lib.fedloge.settings import Settings as LongTailed
from fedmuscle_lib.fedmuscle.settings import Settings
from fedmuscle_lib.runs import Store, run
from fedmuscle_lib.runs.settings import RunSettings, parse, try_device


def _run(settings: Settings) -> None:
    """Two rounds of local training and of FedMuscle, computed anew and one after the other."""
    with TemporaryDirectory() as folder:
        store = Store(Path(folder))  # what is in the usual one was measured some other time
        histories = [
            run(settings.model_copy(update={"algorithm": name, "rounds": 2}), store=store)
            for name in ("local", "fedmuscle")
        ]
    print(report.costs(histories).round(2).to_string(index=False))


def _step(settings: Settings) -> None:
    bench.bench_step(settings)
    bench.bench_checks(settings)


def _network(settings: Settings) -> None:
    """The settings say B and d alone."""
    needs_grpc()
    from fedmuscle_lib.network.bench import bench_network

    bench_network(batch=settings.public_batch, dim=settings.proj_dim)


BENCHES: dict[
    str, tuple[type[RunSettings], Callable[[Any], object]]
] = {  # the settings that each takes
    "run": (Settings, _run),
    "loss": (
        Settings,
        lambda s: bench.bench_loss(dim=s.proj_dim, threads=s.threads, device=s.device, seed=s.seed),
    ),
    "step": (Settings, _step),
    "local": (Settings, bench.bench_local),
    "order": (
        Settings,
        lambda s: bench.bench_order(
            samples=s.public_size,
            dim=s.proj_dim,
            threads=s.threads,
            device=s.device,
            seed=s.seed,
        ),
    ),
    "network": (Settings, _network),
    "fedloge": (LongTailed, bench_fedloge),
}


def command(
    name: Annotated[
        str,
        typer.Argument(metavar="|".join(sorted(BENCHES)), help="What to measure on this machine."),
    ],
    parameter: Parameters = None,
) -> None:
    """Print what the loss costs beside the original code's form, what a step costs beside plainer
    ones, or what a short run costs.

    `step` is an alignment step; it ends with what the checks of messages and weights cost. `local`
    is a step of local training, `network` the exchange of a round between parties on loopback.
    `order` is what directed peers cost the server, `fedloge` a round of FedLoGe's system.
    """
    check_known("no benchmark", name, BENCHES)
    kind, measure = BENCHES[name]
    threads = (
        {"threads": 2} if name == "loss" else {}
    )  # the loss is large enough to be shared, the mini models are not
    settings = parse(kind, threads | named_values(parameter))
    if kind is Settings and settings.algorithm != "fedmuscle":
        raise ValueError(f"algorithm: bench measures FedMuscle, not {settings.algorithm!r}")
    try_device(settings.device)
    measure(settings)
