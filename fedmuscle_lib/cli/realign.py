"""``realign``: a saved model with each of its heads, realigned ones too."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from fedmuscle_lib.cli.fedloge import show_accuracies
from fedmuscle_lib.core.torch_state import fixed_state
from fedmuscle_lib.fedloge.export import load


def command(
    path: Annotated[
        Path, typer.Argument(metavar="FOLDER_OR_FILE", help="What `fedloge --save-models` wrote.")
    ],
    norm: Annotated[
        float | None,
        typer.Option(
            help="Of the realigned global head's rows; by default the run's, 1.7 in the authors'"
            " code."
        ),
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Where the run's data lie, if not in their usual place.")
    ] = None,
) -> None:
    """Print accuracies of a saved model with each of its heads, realigned ones too.

    Nothing is trained.
    """
    rounds = load(path, norm, device="cpu", **({"data_dir": data_dir} if data_dir else {}))
    settings, federation = rounds.settings, rounds.federation
    if not federation.method.realignments:
        raise ValueError(f"{path}: a model of {settings.algorithm}, which has no realigned head")
    with fixed_state(settings.threads):
        rows = pd.DataFrame(federation.evaluate(settings.rounds))
    print(", ".join(f"{name} {value}" for name, value in federation.method.options))
    show_accuracies(settings, rows)
