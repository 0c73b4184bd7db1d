"""The lines beside tables and figures: whose numbers these are, and what intervals mean in them."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from fedmuscle_lib.data.public import NAMES
from fedmuscle_lib.fedmuscle import algorithms
from fedmuscle_lib.fedmuscle.ablations import runs_of
from fedmuscle_lib.fedmuscle.algorithms import Phase
from fedmuscle_lib.fedmuscle.arms import HEADLINE, TUNED_BASELINE, is_blind, label
from fedmuscle_lib.fedmuscle.profiles import tuned_tasks
from fedmuscle_lib.fedmuscle.settings import Settings
from fedmuscle_lib.report import provenance
from fedmuscle_lib.report.paper import PAPER, cells, printed
from fedmuscle_lib.report.provenance import described, origins, spread
from fedmuscle_lib.report.side_by_side import SideBySide, side_by_side
from fedmuscle_lib.report.tables import Runs, deltas, ends, metrics, points_of, tidy
from fedmuscle_lib.runs.history import History, algorithm_of

_WORDS = {"efficientnet": "EfficientNet", "minilm": "MiniLM", "vit": "ViT"}


def seeds_taken(runs: Runs) -> str:
    """A sentence: the seeds of these runs, and the arms that have fewer."""
    return provenance.seeds_taken(runs_of(points_of(runs)), label)


def page_table(
    runs: Sequence[History],
    phase: Phase = HEADLINE,
    paper: Sequence[str] = PAPER,
    references: pd.DataFrame | None = None,
) -> SideBySide:
    """Every user and Delta beside the cells of the tables ``paper``, laid out for reading."""
    end, s = ends(tidy(runs), phase), runs[0].settings
    users, delta = metrics(end, cells(s, paper)), deltas(end, printed(s, paper))
    return side_by_side(users, delta, references, models(s))


def note(runs: Runs) -> str:
    """A Markdown line under a table: whose numbers these are, what ± and brackets mean, and where
    the runs come from.
    """
    histories = runs_of(points_of(runs))
    s, seeds = histories[0].settings, {run.settings.seed for run in histories}
    sentences = [f"Profile `{s.profile}`, {s.setup}. {seeds_taken(runs)}"]
    tasks = dict.fromkeys(user.task for run in histories for user in run.settings.members)
    if any(run.arm == TUNED_BASELINE for run in histories) and (
        fixed := [task for task in tasks if task not in tuned_tasks(s.profile)]
    ):
        sentences.append(f"Users with {', '.join(fixed)} have no tuned recipe but the fixed one.")
    for name in dict.fromkeys(run.arm for run in histories):
        serves = algorithms.get(algorithm_of(name)).serves
        if unserved := [task for task in tasks if not serves(task)]:
            sentences.append(f"{label(name)} does not serve {', '.join(unserved)}: it has no Δ.")
    return " ".join([*sentences, spread(seeds), *origins(histories)])


def about(runs: Runs) -> str:
    """The line above a figure: world, users, public set, seeds and what intervals are in it."""
    histories = runs_of(points_of(runs))
    s = max((run.settings for run in histories), key=lambda s: len(s.members))
    publics = dict.fromkeys(run.settings.public for run in histories if not is_blind(run.arm))
    users = sorted({len(run.settings.members) for run in histories if run.arm == "fedmuscle"})
    parts = [
        s.setup.capitalize().replace("_", " ")
        + (f", protocol {s.protocol}" if s.protocol == "paper" else "")
    ]
    parts += [f"{', '.join(map(str, users or [len(s.members)]))} users"]
    parts += [f"public set {NAMES[public]}" for public in publics if len(publics) == 1]
    return described(histories, *parts)


def models(settings: Settings) -> dict[str, str]:
    """What users' models are called: the checkpoint that stands for the paper's model, where that
    is another network.

    Returns:
        the paper's model -> such as "EfficientNet-Lite1, for ViT-Base"; without those that are what
        the paper says, at another size.
    """
    found = {}
    for model, checkpoint in settings.backbones.items():
        plain = model.lower().replace(" ", "-")
        if "/" not in checkpoint and checkpoint not in plain and plain not in checkpoint:
            words = (_WORDS.get(word, word.capitalize()) for word in checkpoint.split("-"))
            found[model] = f"{'-'.join(words)}, for {model}"
    return found
