"""``run``: one experiment of FedMuscle's."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedmuscle_lib import report
from fedmuscle_lib.fedmuscle.settings import Settings
from fedmuscle_lib.runs import History, default_store, run, stored


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
    history = run(settings, save_models=save_models)
    show([local, history] if local and settings.algorithm != report.BASELINE else [history])
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
    path = default_store().entry(history.provenance["address"]).path
    print(history.remark or f"stored in {path}")
    if len(histories) == 2:
        for phase in (report.HEADLINE, report.OTHER_MOMENT):
            rows = report.ends(report.tidy(histories), phase)
            table = report.deltas(rows, report.printed(history.settings))
            row = table.set_index("algorithm").loc[history.settings.algorithm]
            undefined = row.delta != row.delta
            value = "undefined: a local metric is 0" if undefined else f"{row.delta:+.2f} %"
            print(f"Delta {phase.replace('_', ' ')}: {value}")
        if row.paper_delta == row.paper_delta:
            print(f"the paper's Delta, with other data and models: {row.paper_delta:+.1f} %")
    elif history.settings.algorithm != report.BASELINE:
        print(
            "Delta: local training has not been run with these settings; --with-local runs it too"
        )
