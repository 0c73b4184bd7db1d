"""Results in sentences, as Markdown: the line under a table, and sentences that name a difference,
its interval and the paper's.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from math import comb
from typing import Any

import pandas as pd

from fedmuscle_lib.data.public import NAMES
from fedmuscle_lib.fedmuscle import algorithms
from fedmuscle_lib.fedmuscle.ablations import Point, runs_of
from fedmuscle_lib.fedmuscle.arms import TUNED, TUNED_BASELINE, is_blind, label
from fedmuscle_lib.fedmuscle.profiles import tuned_protocol, tuned_tasks
from fedmuscle_lib.report.compare import (
    beside_papers_delta,
    delta_difference,
    in_short,
    per_user_difference,
)
from fedmuscle_lib.report.costs import relative_costs
from fedmuscle_lib.report.delta import delta, table
from fedmuscle_lib.report.provenance import INTERVALS, described, named, origins, spread
from fedmuscle_lib.report.statistics import interval, rank_correlation, side_of_zero
from fedmuscle_lib.report.write import data_manifests
from fedmuscle_lib.runs.history import History, algorithm_of
from fedmuscle_lib.tasks import direction

_WORDS = {"efficientnet": "EfficientNet", "minilm": "MiniLM", "vit": "ViT"}


def note(histories: Sequence[History], points: Sequence[Point] = ()) -> str:
    """A Markdown line under a table: whose numbers these are, what ± and brackets mean, and where
    the runs come from.

    Args:
        points: of an ablation, which ``histories`` are one of: where the runs of all of them come
            from.
    """
    s, seeds = histories[0].settings, sorted({history.settings.seed for history in histories})
    papers = not points and table(histories).paper_mean.notna().any()
    sentences = ["The first line of a cell is ours, the second the paper's."] if papers else []
    sentences += [f"Profile `{s.profile}`, {s.setup}, {named(seeds)}."]
    sentences += _left_out(histories) + _out_of_reach(histories)
    if subsets := sorted(
        {f"`{m['dataset']}`" for m in data_manifests(histories).values() if m["official"] is False}
    ):
        sentences.append(
            f"Of {', '.join(subsets)} a subset or another edition than the official one is used."
        )
    if any(
        "order" not in algorithms.get(h.settings.algorithm).ignores
        and h.settings.order != "local_first"
        for h in histories
    ):
        sentences.append(
            "Rounds align first here: after the last alignment these users have one local phase"
            " less behind them than in local training, and the runs end after the last local"
            " updates."
        )
    return " ".join([*sentences, spread(seeds), *origins(runs_of(points) or histories)])


def about(
    histories: Sequence[History | Point], paper: bool = False, seeds_are: str = INTERVALS
) -> str:
    """The line above a figure: world, users, public set, seeds and what several of them are in it.

    Args:
        histories: runs, or the points of an ablation.
        paper: also the paper's Delta of FedMuscle, for figures that do not draw it.
        seeds_are: what several seeds are in the figure, such as "arrows are as wide as the share of
            seeds".
    """
    points = [one for one in histories if isinstance(one, Point)]
    groups = [list(point.histories) for point in points] or [
        [one for one in histories if isinstance(one, History)]
    ]
    runs = [run for group in groups for run in group]
    s = max((run.settings for run in runs), key=lambda s: len(s.members))
    publics = list(dict.fromkeys(run.settings.public for run in runs if not is_blind(run.arm)))
    users = sorted(
        {max(len(run.settings.members) for run in group) for group in groups}
    )  # some arms do not serve everybody
    parts = [
        s.setup.capitalize().replace("_", " ")
        + (f", protocol {s.protocol}" if s.protocol == "paper" else "")
    ]
    parts += [
        f"{', '.join(map(str, users))} users",
        *(f"public set {NAMES[public]}" for public in publics if len(publics) == 1),
    ]
    if paper:
        rows = delta(groups[0])
        printed = rows[rows.algorithm == "fedmuscle"].dropna(subset="paper_delta")
        told = ", ".join(
            f"{row.paper_delta:+.2f} % on {NAMES[row.public]}" for row in printed.itertuples()
        )
        parts += [f"the paper's FedMuscle: {told}"] if told else []
    return described(runs, *parts, seeds_are=seeds_are)


def models(histories: Sequence[History]) -> dict[str, str]:
    """What users' models are called: the checkpoint that stands for the paper's model, where that
    is another network.

    Returns:
        the paper's model -> such as "EfficientNet-Lite1, for ViT-Base"; without those that are what
        the paper says, at another size.
    """
    found = {}
    for model, checkpoint in histories[0].settings.backbones.items():
        plain = model.lower().replace(" ", "-")
        if "/" not in checkpoint and checkpoint not in plain and plain not in checkpoint:
            words = (_WORDS.get(word, word.capitalize()) for word in checkpoint.split("-"))
            found[model] = f"{'-'.join(words)}, for {model}"
    return found


def _left_out(histories: Sequence[History]) -> list[str]:
    """Sentences: that there is no tuned baseline to compare with, and whom an arm does not
    serve.
    """
    sentences = []
    if not tuned_protocol(histories[0].settings.profile):
        sentences.append(
            "This profile has no tuned protocol, so there is no Δ over tuned local training."
        )
    tasks = dict.fromkeys(user.task for history in histories for user in history.settings.members)
    tuned = any(history.arm == TUNED_BASELINE for history in histories)
    if tuned and (
        fixed := [task for task in tasks if task not in tuned_tasks(histories[0].settings.profile)]
    ):
        sentences.append(
            f"{_and(fixed)} {'have' if len(fixed) > 1 else 'has'} no tuned recipe: its users' tuned"
            " arms have the fixed one."
        )
    for name in dict.fromkeys(one.arm for one in histories):
        if unserved := [
            task for task in tasks if not algorithms.get(algorithm_of(name)).serves(task)
        ]:
            sentences.append(
                f"{label(name)} does not serve users with {_and(unserved)}, so it has no Δ over all"
                " users."
            )
    return sentences


def _out_of_reach(histories: Sequence[History]) -> list[str]:
    """Sentences: whom alignment can't change, since all that it trains of them is a projection that
    no head reads.
    """
    found: dict[str, list[str]] = {}
    for history in histories:
        settings, algorithm = history.settings, algorithms.get(history.settings.algorithm)
        aligned = "optimisers" not in algorithm.ignores and settings.head_on != "representation"
        if aligned and (
            users := [
                str(user.number)
                for user in settings.members
                if settings.of(user, "lora_blocks") == "none"
            ]
        ):
            found[label(history.arm)] = users
    return [
        f"{name}: alignment can't change what user{'s' * (len(users) > 1)} {_and(users)} reached,"
        " for want of LoRA in the backbone."
        for name, users in found.items()
    ]


def compared(histories: Sequence[History], a: str, b: str) -> str:
    """Markdown sentences, one a public set: by how much Delta of ``a`` exceeds that of ``b``, and
    whether the seeds can tell.
    """
    return "\n".join(
        f"- `{public}`: {sentence}" for public, sentence in _compared(histories, a, b).items()
    )


def _compared(histories: Sequence[History], a: str, b: str) -> dict[str, str]:
    paper = delta(histories).set_index(["algorithm", "public"]).paper_delta
    sentences = {}
    for row in delta_difference(histories, a, b).itertuples():
        theirs = paper[a, row.public] - paper[b, row.public]
        quoted = "" if pd.isna(theirs) else f" The paper's is {theirs:+.2f}."
        sentences[row.public] = (
            f"Δ({label(a)}) − Δ({label(b)}) = **{row.difference:+.2f}**"
            f" points{_verdict(row)}{quoted}"
        )
    return sentences


def _verdict(row: Any) -> str:
    if pd.isna(row.difference):
        return ": undefined, since a metric of local training is 0."
    if pd.isna(row.ci_low):
        return "; without an interval this can't be told from chance."
    told = "clear of 0" if side_of_zero(row.ci_low, row.ci_high) else "which includes 0"
    return f", 95 % interval {interval(row.ci_low, row.ci_high)}, {told}."


def in_three_sentences(histories: Sequence[History]) -> str:
    """Markdown, an item of three sentences a public set: what FedMuscle gains, what of it peers
    give, what local training destroys.
    """
    items = []
    for public, rows in in_short(histories).groupby("public", sort=False):
        gain, peers, destroyed = (
            list(rows[rows.question == name].itertuples())
            for name in ("gain", "peers", "destroyed")
        )
        over = [
            f"{_quoted(row, ' %')} over {label(row.over).lower()}"
            for row in gain
            if row.arm == "fedmuscle"
        ]
        beside = [f"{label(row.over).lower()} {_quoted(row, ' points')}" for row in peers]
        left = [f"{_quoted(row, ' %')} ({label(row.arm).lower()})" for row in destroyed]
        alike = [
            _quoted(row, " %")
            for row in gain
            if (row.arm, row.over) == (f"fedmuscle, {TUNED}", TUNED_BASELINE)
        ]
        tuned = "".join(f"; with the tuned recipe it is {value} over the latter" for value in alike)
        sentences = [f"FedMuscle's Δ is {_and(over)}{tuned}."] if over else []
        sentences += (
            [f"Its Δ minus that of arms without live, matched peers: {_and(beside)}."]
            if beside
            else []
        )
        sentences += (
            [
                f"Backbones that stay as they were pretrained have a Δ of {_and(left)}:"
                f" {_destroyed(destroyed)}."
            ]
            if left
            else []
        )
        items.append(f"- `{public}`: {' '.join(sentences)}")
    return "\n".join(items)


def _quoted(row: Any, unit: str) -> str:
    if pd.isna(row.ci_low):
        return f"**{row.difference:+.2f}**{unit}"
    told = "" if side_of_zero(row.ci_low, row.ci_high) else " (not clear of 0)"
    return f"**{row.difference:+.2f}**{unit} {interval(row.ci_low, row.ci_high)}{told}"


def _and(parts: Sequence[str]) -> str:
    *first, last = parts
    return f"{', '.join(first)} and {last}" if first else last


def _destroyed(rows: Sequence[Any]) -> str:
    """Return a sentence on local training beside a frozen backbone: by ``head_only``, since a probe
    has another head and solver too.
    """
    alike = [row for row in rows if row.arm == "head_only"]
    if any(pd.isna(row.ci_low) for row in rows):
        return "one seed cannot tell how much of this is chance"
    if not alike:
        return "its head is another one, so that this may be due to head or backbone"
    return {
        1: "with the same head, local training destroys part of what it starts from",
        -1: "with the same head, local training adds to what it starts from",
        0: "these seeds can't show that local training destroys anything",
    }[side_of_zero(alike[0].ci_low, alike[0].ci_high)]


def displaced(histories: Sequence[History], most: int = 3) -> str:
    """Markdown, an item a public set: how many pairs of algorithms Delta orders otherwise than in
    the paper, and ``most`` of them.

    First come those whose distance in places differs most from the paper's.
    """
    items = []
    for public, both in beside_papers_delta(histories):
        here, there = (
            both[column].rank(ascending=False, method="min").astype(int)
            for column in ("delta", "paper_delta")
        )
        turned = [
            (a, b)
            for a, b in permutations(both.index, 2)
            if here[a] < here[b] and there[a] > there[b]
        ]
        turned.sort(
            key=lambda pair: here[pair[1]] - here[pair[0]] + there[pair[0]] - there[pair[1]],
            reverse=True,
        )
        of = (
            f"{len(turned)} of the {comb(len(both), 2)} pairs of algorithms that the paper has a"
            " Δ for"
        )
        items.append(f"- `{public}`: {of} stand the other way round than there.")
        for a, b in turned[:most]:
            first, second = (
                f"{label(name)} (place {here[name]}, there {there[name]})" for name in (a, b)
            )
            items.append(f"  - {first} before {second}: {_compared(histories, a, b)[public]}")
    return "\n".join(items)


def cost_order(histories: Sequence[History]) -> str:
    """A Markdown sentence: whether counted computation orders the algorithms of Table 1 as its
    TeraFLOPS do.
    """
    both = relative_costs(histories).dropna(subset="paper_flop_over_local")
    agreement = rank_correlation(both.flop_over_local, both.paper_flop_over_local)
    if pd.isna(agreement["rho"]):
        return "There is no order of computation to compare with the paper's."
    return (
        f"The {len(both)} algorithms of Table 1, ordered by their computation here and in the"
        f" paper: Spearman's ρ = **{agreement['rho']:+.2f}** (p = {agreement['rho_p']:.2g})."
    )


def users_told_apart(histories: Sequence[History], a: str, b: str) -> str:
    """A Markdown sentence: for how many users, and which, ``a`` is better or worse than ``b`` by
    the paired intervals.
    """
    rows = per_user_difference(histories, a, b)
    if rows.ci_low.isna().all():
        better = [
            row.user for row in rows.itertuples() if direction(row.metric) * row.difference > 0
        ]
        return (
            f"On its one seed {label(a)} is better than {label(b)} for {len(better)} of {len(rows)}"
            f" users{_in_brackets(better)}; one seed cannot tell how much of this is chance."
        )
    told = [
        (row.user, direction(row.metric) * side_of_zero(row.ci_low, row.ci_high))
        for row in rows.itertuples()
    ]
    better, worse = ([user for user, side in told if side == sign] for sign in (1, -1))
    return (
        f"{label(a)} is better than {label(b)} for {len(better)} of {len(rows)}"
        f" users{_in_brackets(better)} and worse for {len(worse)}{_in_brackets(worse)}, with the 95"
        " % interval of the paired difference excluding 0; for the other"
        f" {len(rows) - len(better) - len(worse)} it includes 0."
    )


def _in_brackets(users: list[int]) -> str:
    return f" (user{'s' * (len(users) > 1)} {', '.join(map(str, users))})" if users else ""
