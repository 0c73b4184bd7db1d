"""``tune``: recipes of local training by task, or one algorithm's own options, on the validation
split.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from fedmuscle_lib import report, tuning
from fedmuscle_lib.cli.options import Parameters, Profile, named_values, seeds_of
from fedmuscle_lib.core.files import ROOT
from fedmuscle_lib.fedmuscle.settings import parse
from fedmuscle_lib.runs.settings import try_device

_DECIDED = {
    "profile",
    "setup",
    "algorithm",
    "protocol",
    "seed",
    "evaluate_on",
    "evaluate_every",
}  # whatever -p says


def command(
    profile: Profile = "mini",
    setup: Annotated[
        str, typer.Option(help="The setup whose tasks are tuned; other tasks keep their recipes.")
    ] = "setup1",
    algorithm: Annotated[
        str,
        typer.Option(
            help="What is tuned: local training's recipes, or the options of another algorithm."
        ),
    ] = "local",
    seeds: Annotated[
        str | None,
        typer.Option(
            metavar="100,101,102",
            help=(
                "Of recipes the first one tries everything, the others the best two of each task;"
                " of options all try everything, "
                f"by default {tuning.SEEDS[0]} alone."
            ),
        ),
    ] = None,
    confirm: Annotated[
        str | None,
        typer.Option(
            metavar="PROFILE",
            help="Compare only an algorithm's authors' values and this profile's options of it.",
        ),
    ] = None,
    figures: Annotated[
        Path, typer.Option(help="Where <profile>/tuning.csv or tuning_options.csv is written.")
    ] = ROOT / "figures",
    parameter: Parameters = None,
) -> None:
    """Choose on the validation split: the recipes of the protocol `tuned`, or the options of an
    algorithm for a profile's table of options.

    At most twelve configurations of local training for each task are tried, and at most six of
    another algorithm's options.
    """
    own = named_values(parameter)
    if taken := own.keys() & _DECIDED:
        raise ValueError(
            f"-p {min(taken)}: tune has an option for it, or decides it itself: tune --help"
        )
    settings = parse(
        own | {"profile": profile, "setup": setup, "algorithm": algorithm, "protocol": "fixed"}
    )
    tried = (
        [{}, tuning.tuned_options(parse({"profile": confirm}).profile, algorithm)]
        if confirm
        else []
    )
    given = None if seeds is None else seeds_of(seeds)
    try_device(settings.device)
    tuning.claim(figures / profile)
    (figures / profile).mkdir(
        parents=True, exist_ok=True
    )  # a folder that can't be made is refused before the runs
    if algorithm == report.BASELINE:
        table = tuning.tune(settings, given or tuning.SEEDS, tuning.CONFIGURATIONS)
        paths = [*tuning.write(table, settings, figures)]
    else:
        table = tuning.tune_options(settings, given or tuning.SEEDS[:1], tried)
        paths = [tuning.write_options(table, settings, figures)]
    print(table.to_string(index=False))
    for path in paths:
        print(f"{path}: written")
    if algorithm != report.BASELINE:
        options = json.loads(table[table.chosen].options.iloc[0])
        lines = [f'"{algorithm}.{name}" = {json.dumps(value)}' for name, value in options.items()]
        print(
            f"[options] of {profile}.toml: "
            + ("; ".join(lines) or f"nothing, the authors' values of {algorithm} are the best")
        )
