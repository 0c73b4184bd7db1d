"""``reproduce``: notebooks into tables, figures and an index page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedmuscle_lib.cli.options import Parameters, Profile, named_values, numbers_of
from fedmuscle_lib.core.command_line import DONE, FAILURE
from fedmuscle_lib.reproduce import reproduce
from fedmuscle_lib.runs.settings import try_device


def command(
    notebooks: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NOTEBOOK]...",
            help="Names such as table7, files such as study/depth.ipynb, or all. [default: table1,"
            " table2, table7, controls; with --shipped-only all]",
        ),
    ] = None,
    profile: Profile = "mini",
    seeds: Annotated[
        str | None,
        typer.Option(
            metavar="0,1,2",
            help="Seeds of every run. [default: 0; with --shipped-only the reference's]",
        ),
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Notebooks at a time.")] = 2,
    output: Annotated[Path, typer.Option(help="Where <profile>/<notebook>/ is written.")] = Path(
        "results"
    ),
    shipped_only: Annotated[
        bool,
        typer.Option(
            "--shipped-only",
            help="Compute nothing: show the runs that came with the repository, or are stored.",
        ),
    ] = False,
    first_public: Annotated[
        bool,
        typer.Option("--first-public", help="Of a notebook's several public sets, the first."),
    ] = False,
    scheduler: Annotated[
        str | None,
        typer.Option(metavar="tcp://HOST:PORT", help="A Dask scheduler whose workers compute."),
    ] = None,
    parameter: Parameters = None,
) -> None:
    """Execute notebooks and regenerate their tables, figures and the index page."""
    own = named_values(parameter)
    if "device" in own and not (shipped_only or scheduler):
        try_device(str(own["device"]))  # before a notebook starts
    outcomes = reproduce(
        notebooks or None,
        profile,
        None if seeds is None else numbers_of("seeds", seeds),
        jobs,
        output,
        own,
        shipped_only=shipped_only,
        first_public=first_public,
        scheduler=scheduler,
    )
    for outcome in outcomes:
        ending = outcome.missing and f"missing: {outcome.missing}"
        ending = ending or outcome.failure and f"failed: {outcome.failure}"
        print(f"{outcome.notebook}: {ending or 'done'} ({outcome.seconds:.0f} s)")
    print(f"index: {output / profile / 'index.html'}")
    raise typer.Exit(FAILURE if any(outcome.failure for outcome in outcomes) else DONE)
