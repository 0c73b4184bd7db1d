"""``fedloge``: one run of a long-tailed federation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

from fedmuscle_lib.fedloge.settings import Settings
from fedmuscle_lib.runs import History, run

FLAGS = {
    "beta": (
        float,
        "FedProx's coefficient mu, which is what the authors' --beta is, and not the sparsity of"
        " SSE-C (--options '{\"fedloge.sparsity\": 0.6}'). It sets the option fedprox.mu, which"
        " only FedProx reads; 0 is FedAvg.",
    )
}
# Whose accuracies there are, and on what.
_SCOPES = {
    "global": ("Global model", "on the whole test set"),
    "personal": ("Clients' own models", "mean over the clients' local tests"),
}
_MASKED = "masked: classes that a client's local test lacks can't be predicted"


def command(
    settings: Settings,
    save_models: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Write the trained model there, for `realign`. A stored run is computed again.",
        ),
    ] = None,
) -> None:
    """Run one long-tailed federation, or fetch it if it was run before, and print its accuracies by
    group of classes.
    """
    history = run(settings, save_models=save_models)
    show(history)
    print(f"saved in {save_models}" if save_models else "--save-models FOLDER saves the model")
    if settings.method.realignments:
        print(f"realign it: python -m fedmuscle_lib realign {save_models or 'FOLDER'}")


def translated(given: dict[str, Any]) -> dict[str, Any]:
    """Replace the authors' --beta by the option that it is."""
    values = {name: value for name, value in given.items() if name != "beta"}
    if "beta" in given:
        values["options"] = values.get("options", {}) | {"fedprox.mu": given["beta"]}
    return values


def show(history: History[Settings]) -> None:
    """Print the last round's accuracies and the run's costs."""
    show_accuracies(history.settings, history.final())
    cost = history.costs[["uplink_bytes", "downlink_bytes"]].mean() / 1e6
    seconds = history.provenance["seconds"]
    print(
        f"per client and round: {cost.uplink_bytes:.2f} MB up, {cost.downlink_bytes:.2f} MB down;"
        f" {seconds:.0f} s in all"
    )
    if history.remark:
        print(history.remark)


def show_accuracies(settings: Settings, rows: pd.DataFrame) -> None:
    """Print a table of the global model and one of the clients' own; "-" for a group that nobody
    was tested on.
    """
    print(f"{settings.title}: accuracy in % after round {settings.rounds}, by group of classes")
    for scope, (model, judged) in _SCOPES.items():
        own = rows[rows.scope == scope]
        if own.empty:
            print(f"\n{model}: it has no head")
        else:
            table = own.pivot(index="head", columns=["masked", "group"], values="value")
            table = table.loc[own["head"].unique()]
            print(f"\n{model}, {judged}\n{table.to_string(float_format='%.2f', na_rep='-')}")
    print(f"\n{_MASKED}")
