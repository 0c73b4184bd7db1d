"""``reproduce``: notebooks into tables, figures and an index page."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from fedmuscle_lib.cli.options import Parameters, Profile, named_values, seeds_of
from fedmuscle_lib.core.exit_codes import DONE, FAILURE
from fedmuscle_lib.reproduce import Outcome, reproduce
from fedmuscle_lib.runs.settings import try_device

_NOTEBOOKS = (
    "Names such as table7, or all. [default: table1, table2, table7, controls; with --shipped-only"
    " all]"
)


def command(
    notebooks: Annotated[
        list[str] | None, typer.Argument(metavar="[NOTEBOOK]...", help=_NOTEBOOKS)
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
    scheduler: Annotated[
        str | None,
        typer.Option(metavar="tcp://HOST:PORT", help="A Dask scheduler whose workers compute."),
    ] = None,
    parameter: Parameters = None,
) -> None:
    """Execute notebooks and regenerate their tables, figures and the index page."""
    numbers = None if seeds is None else seeds_of(seeds)
    own = named_values(parameter)
    if not (
        shipped_only or scheduler or os.environ.get("FEDMUSCLE_SCHEDULER")
    ):  # which compute nothing here
        overrides = own.get("overrides")
        for place in (own, overrides if isinstance(overrides, dict) else {}):
            if isinstance(place.get("device"), str):
                try_device(place["device"])
    outcomes = reproduce(
        notebooks or None,
        profile,
        numbers,
        jobs,
        output,
        own,
        shipped_only=shipped_only,
        scheduler=scheduler,
    )
    for outcome in outcomes:
        print(f"{outcome.notebook}: {_ending(outcome)} ({outcome.seconds:.0f} s)")
    print(f"index: {output / profile / 'index.html'}")
    raise typer.Exit(FAILURE if any(outcome.failure for outcome in outcomes) else DONE)


def _ending(outcome: Outcome) -> str:
    if outcome.missing:
        return f"missing: {outcome.missing}"
    return f"failed: {outcome.failure}" if outcome.failure else "done"
