"""``tune``: recipes of local training by task, on the validation split."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedmuscle_lib import tuning
from fedmuscle_lib.cli.options import Parameters, named_values, seeds_of
from fedmuscle_lib.profiles import ROOT
from fedmuscle_lib.settings import Settings, parse


def command(
    profile: Annotated[str, typer.Option(help=Settings.model_fields["profile"].description)] = "mini",
    setup: Annotated[str, typer.Option(help="The setup whose tasks are tuned; other tasks keep their recipes.")] = "setup1",
    seeds: Annotated[
        str, typer.Option(metavar="100,101,102", help="The first one tries everything, the others the best two of each task.")
    ] = ",".join(map(str, tuning.SEEDS)),
    figures: Annotated[Path, typer.Option(help="Where <profile>/tuning.csv is written.")] = ROOT / "figures",
    parameter: Parameters = None,
) -> None:
    """Choose the recipes of the protocol `tuned`: local training of each task, at most twelve configurations, on the validation split."""
    settings = parse(named_values(parameter) | {"profile": profile, "setup": setup, "algorithm": "local", "protocol": "fixed"})
    table = tuning.tune(settings, seeds_of(seeds), tuning.CONFIGURATIONS)
    print(table.to_string(index=False))
    for path in tuning.write(table, settings, figures):
        print(f"{path}: written")
