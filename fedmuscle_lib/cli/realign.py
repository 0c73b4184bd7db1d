"""``realign``: a saved model before and after each realignment of its heads."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from fedmuscle_lib.cli.fedloge import MASKED, SCOPES, by_group, text
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
    """Print accuracies of a saved model before and after each realignment of its heads.

    Nothing is trained.
    """
    changes = {"data_dir": data_dir} if data_dir else {}
    rounds = load(path, norm, device="cpu", **changes)
    settings, method = rounds.settings, rounds.federation.method
    if not method.realignments:
        raise ValueError(f"{path}: a model of {settings.algorithm}, which has no realigned head")
    with fixed_state(settings.threads):
        rows = pd.DataFrame(rounds.federation.evaluate(settings.rounds))
    options = ", ".join(f"{name} {value}" for name, value in method.options)
    print(
        f"{settings.title}: accuracy in % after round {settings.rounds}, by group of"
        f" classes\n{options}"
    )
    for scope, before, after, source in method.realignments:
        table = by_group(rows[rows.scope == scope], rounds.federation.groups).loc[[before, after]]
        table.loc["change"] = table.loc[after] - table.loc[before]
        print("\n{}, {}; as in {}\n{}".format(*SCOPES[scope], source, text(table)))
    print(f"\n{MASKED}")
