"""``run``: one experiment of FedMuscle's."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedmuscle_lib import report
from fedmuscle_lib.fedmuscle.arms import alignment_steps
from fedmuscle_lib.fedmuscle.settings import Settings
from fedmuscle_lib.runs import History, default_store, run, stored
from fedmuscle_lib.runs.address import address_of


def command(
    settings: Settings,
    with_local: Annotated[
        bool,
        typer.Option(
            "--with-local", help="Run local training of the same settings first, for Delta."
        ),
    ] = False,
    save_models: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Write each user's adapter, head and card to FOLDER/user_<number>. A stored run is"
            " computed again.",
        ),
    ] = None,
) -> None:
    """Run one experiment, or fetch it if it was run before, and print its metrics beside what needs
    no backbone, and Delta.
    """
    baseline = settings.model_copy(update={"algorithm": report.BASELINE})
    local = run(baseline) if with_local else stored(baseline)
    known = stored(settings) is not None
    history = run(settings, save_models=save_models)
    show([local, history] if local and settings.algorithm != report.BASELINE else [history])
    if found := default_store().find(address_of(settings)):
        print(f"{'fetched from' if known else 'computed, and stored in'} {found[1].path}")
    if save_models is not None:
        print(f"saved in {save_models}")


def show(histories: list[History]) -> None:
    """Print the last run's metrics and costs and, with its local training before it, Delta."""
    history = histories[-1]
    references = report.references([history]).pivot(
        index="user", columns="reference", values="mean"
    )
    rows = history.final().drop(columns=["round", "phase"])
    rows = rows.join(references.sort_index(axis="columns"), on="user")
    print(rows.round(2).to_string(index=False))
    cost = report.costs([history]).iloc[0]
    print(
        f"per user and round: {cost.uplink_bytes / 1e6:.2f} MB up, {cost.downlink_bytes / 1e6:.2f}"
        f" MB down; {cost.tflop:.2f} TFLOP and {cost.seconds:.0f} s in all"
    )
    if history.remark:
        print(history.remark)
    if len(histories) == 2:
        for phase in (report.HEADLINE, report.OTHER_MOMENT):
            rows = report.ends(report.tidy(histories), phase)
            table = report.deltas(rows, report.printed(history.settings))
            row = table.set_index("algorithm").loc[history.settings.algorithm]
            undefined = row.delta != row.delta
            value = "undefined: a local metric is 0" if undefined else f"{row.delta:+.2f} %"
            print(f"Delta {phase.replace('_', ' ')}: {value}")
        print(f"recipe: {recipe(history.settings)}")
        if row.paper_delta == row.paper_delta:
            print(f"the paper's Delta, with other data and models: {row.paper_delta:+.1f} %")
    elif history.settings.algorithm != report.BASELINE:
        print(
            "Delta: local training has not been run with these settings; --with-local runs it too"
        )


def recipe(settings: Settings) -> str:
    """What the paper leaves open, or what is shorter here, in a line; settings by task are as the
    first user has them.
    """
    user = settings.members[0]
    blocks, hidden = settings.of(user, "lora_blocks"), settings.of(user, "head_hidden")
    epochs, steps = settings.epochs_after(settings.rounds, user), alignment_steps(settings)
    return (
        f"LoRA in {blocks} blocks, a head {hidden} wide, {epochs} local epochs, {steps} alignment"
        " steps"
    )
