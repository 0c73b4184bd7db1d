"""``run``: one experiment of FedMuscle's.

It has an option for every setting, and the original code's flags.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tqdm.auto import tqdm

from fedmuscle_lib import report
from fedmuscle_lib.cli import original
from fedmuscle_lib.cli.form import ORIGINAL, Form, option
from fedmuscle_lib.core import files, ownership
from fedmuscle_lib.fedmuscle import outliers
from fedmuscle_lib.fedmuscle.arms import alignment_steps
from fedmuscle_lib.fedmuscle.settings import Settings
from fedmuscle_lib.report.scores import gain
from fedmuscle_lib.runs import History, Progress, Tick, default_store, run, stored
from fedmuscle_lib.runs.address import address_of

_COLUMNS = (
    "round",
    "task",
    "local_loss",
    "alignment_loss",
)  # the first of a log's, which says whose it is
FORM = Form(Settings, original.translated, original.VALUES, original.NAMES)


def command(
    with_local: bool, save_models: Path | None, logs: Path | None, **options: str | int | None
) -> None:
    """Run one experiment, or fetch it if it was run before, and print its metrics beside what needs
    no backbone, and Delta.
    """
    settings = FORM.read(options)
    if logs is not None:
        for path in _logs_of(settings, logs):
            ownership.reach(path, logs)
            ownership.headed(path, ",".join(_COLUMNS).encode())
            path.parent.mkdir(
                parents=True, exist_ok=True
            )  # a folder that can't be made is refused before the run
    baseline = settings.model_copy(update={"algorithm": report.BASELINE})
    local = run(baseline) if with_local else stored(baseline)
    known = stored(settings) is not None
    if settings.algorithm == report.BASELINE:
        local = None
    history = run(
        settings,
        save_models=save_models,
        on_round=following(local) if local and sys.stderr.isatty() else None,
    )
    show([local, history] if local else [history])
    if found := default_store().find(address_of(settings)):
        print(f"{'fetched from' if known else 'computed, and stored in'} {found[1].path}")
    if save_models is not None:
        print(
            f"saved in {save_models}: "
            + ", ".join(f"user_{user.number}" for user in settings.members)
        )
    if logs is not None:
        print(f"logs in {write_logs(history, logs)}")


def following(local: History) -> Progress:
    """Return a listener that prints Delta over the local run after each round that both
    evaluated.
    """
    rows = local.metrics[local.metrics.phase == report.HEADLINE].rename(columns={"value": "local"})

    def tell(tick: Tick) -> None:
        own = rows[rows["round"] == tick.round]
        delta = gain(own.assign(value=own.user.map(dict(tick.metrics)))).value.mean(skipna=False)
        if delta == delta:
            tqdm.write(f"{tick.run}: round {tick.round}/{tick.rounds}, Delta {delta:+.1f} %")

    return tell


def show(histories: list[History]) -> None:
    """Print the last run's metrics and costs and, with its local training before it, Delta."""
    history = histories[-1]
    references = (
        report.references([history])
        .pivot(index="user", columns="reference", values="mean")
        .round(2)
    )
    rows = (
        history.final()
        .drop(columns=["round", "phase"])
        .round(2)
        .join(references.sort_index(axis="columns"), on="user")
    )
    print(rows.to_string(index=False))
    cost = report.costs([history]).iloc[0]
    print(
        f"per user and round: {cost.uplink_bytes / 1e6:.2f} MB up, {cost.downlink_bytes / 1e6:.2f}"
        f" MB down; {cost.tflop:.2f} TFLOP and {cost.seconds:.0f} s in all"
    )
    if told := report.decisions_in_words(report.decisions([history])):
        print(told)
    if remark := outliers.remark(history.measures.to_dict("records")):
        print(remark)
    if history.remark:
        print(history.remark)
    if len(histories) == 2:
        for phase in (report.HEADLINE, report.OTHER_MOMENT):
            row = (
                report.delta(histories, phase)
                .set_index("algorithm")
                .loc[history.settings.algorithm]
            )
            value = (
                "undefined: a local metric is 0"
                if row.delta != row.delta
                else f"{row.delta:+.2f} %"
            )
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


def _logs_of(settings: Settings, folder: Path) -> list[Path]:
    """A file for each user."""
    own = folder / f"{settings.algorithm}_{settings.public}_seed{settings.seed}"
    return [own / f"client_{user.number}.csv" for user in settings.members]


def write_logs(history: History[Settings], folder: Path) -> Path:
    """Write what was measured of each user, as the original code does:
    ``<algorithm>_<public>_seed<seed>/client_<user>.csv``; return the folder.

    A file has a row a round: the metric after each phase (empty where the round was not evaluated),
        losses, and bytes.
    """
    settings = history.settings
    metrics = history.metrics.pivot(index=["user", "round"], columns="phase", values="value")
    rounds = history.losses.merge(history.costs, on=["user", "round"]).rename(
        columns={"local": "local_loss", "alignment": "alignment_loss"}
    )
    rows = rounds.join(metrics, on=["user", "round"])
    paths = _logs_of(settings, folder)
    for path, user in zip(paths, settings.members, strict=True):
        own = rows[rows.user == user.number].drop(columns="user")
        own.insert(1, "task", user.task)
        files.write(path, own.to_csv(index=False))
    return paths[0].parent


_SAVES = (
    "Write each user's adapter, head and card to FOLDER/user_<number>. A stored run is computed"
    " again."
)
_COUNTS = {
    name: f"The first K users with {task}; of a task without a count nobody takes part."
    for name, task in original.COUNTS.items()
}
command.__signature__ = FORM.signature(  # type: ignore[attr-defined]
    [
        option(
            "with_local", "Run local training of the same settings first, for Delta.", kind=bool
        ),
        option("save_models", _SAVES, "FOLDER", Path),
        option(
            "logs",
            "Write a CSV file of each user's rounds below FOLDER, as the original code does.",
            "FOLDER",
            Path,
        ),
    ],
    [
        *(
            option(name, f"{counts}{FORM.alias(name)}", "K", int, group=ORIGINAL)
            for name, counts in _COUNTS.items()
        ),
        option("adapter_method", "lora, which is all that there is.", "NAME", group=ORIGINAL),
    ],
)
