"""All commands of ``python -m fedmuscle_lib``."""

from __future__ import annotations

import typer

from fedmuscle_lib.cli import (
    algorithms,
    bench,
    certificates,
    creamfl,
    fedloge,
    network,
    notebook,
    original,
    realign,
    reproduce,
    run,
    runs,
    verify,
)
from fedmuscle_lib.cli.form import add
from fedmuscle_lib.creamfl.settings import Settings as Paired
from fedmuscle_lib.fedloge.settings import Settings as LongTailed
from fedmuscle_lib.fedmuscle.settings import Settings

app = typer.Typer(
    help="FedMuscle: run an experiment, regenerate the notebooks, look after stored runs, measure.",
    add_completion=False,
    rich_markup_mode="rich",  # groups of options; errors are told by `__main__`
    pretty_exceptions_enable=False,
)
add(app, "run", run.command, Settings, original.translated, original.FLAGS)
add(app, "fedloge", fedloge.command, LongTailed, fedloge.translated, fedloge.FLAGS)
add(app, "creamfl", creamfl.command, Paired)
for module in (realign, reproduce, verify, bench, algorithms, notebook, certificates, runs):
    app.command(module.__name__.rpartition(".")[2])(module.command)
for command in (network.serve, network.join):
    app.command()(command)
