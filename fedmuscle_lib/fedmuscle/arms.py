"""Arms of a table: settings in, histories out.

A run stands in tables under the name of its algorithm, or as one setting of it beside others.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from fedmuscle_lib.core.notebooks import page_seeds
from fedmuscle_lib.core.randomness import batches
from fedmuscle_lib.fedmuscle import algorithms
from fedmuscle_lib.fedmuscle.algorithms import PHASES, Phase
from fedmuscle_lib.fedmuscle.profiles import tuned_tasks
from fedmuscle_lib.fedmuscle.settings import Settings, parse
from fedmuscle_lib.runs import History, run_all, stored
from fedmuscle_lib.runs.address import cached_digests
from fedmuscle_lib.runs.compute import may_compute
from fedmuscle_lib.runs.history import algorithm_of, setting_of

# The moment of the last round that tables, figures and Delta stand at unless they say another. The
# paper does not say when it evaluates; this is the literal end of Algorithm 1.
HEADLINE: Phase = "after_alignment"
(OTHER_MOMENT,) = (phase for phase in PHASES if phase != HEADLINE)
BASELINE = "local"
# the setting of arms whose hyper-parameters were chosen on the validation split, for local training
TUNED = "tuned"
TUNED_BASELINE = f"{BASELINE}, {TUNED}"
# the setting of arms whose own options are not what the profile tuned, but their authors'
AUTHORS = "authors' values"
_PAPERS = ("", AUTHORS)  # settings under which the paper has an algorithm
CONTROLS = (TUNED_BASELINE, "head_only", "self", "probe")
Key = TypeVar("Key", bound=tuple[Any, ...])
_log = logging.getLogger("fedmuscle")


def is_blind(arm: str) -> bool:
    """Return whether the arm's algorithm never looks at public data, so that one run of it counts
    for every public set.
    """
    return "public" in algorithms.get(algorithm_of(arm)).ignores


def added(arm: str) -> bool:
    """Return whether the paper does not have the arm: its algorithm is a control, or ours, or it is
    tuned.
    """
    algorithm = algorithm_of(arm)
    return (
        setting_of(arm) == TUNED
        or algorithm in algorithms.names()
        and algorithms.get(algorithm).source != "the paper"
    )


def label(arm: str) -> str:
    """The arm's name for legends and headings."""
    algorithm = algorithm_of(arm)
    return (
        algorithms.get(algorithm).label + arm.removeprefix(algorithm)
        if algorithm in algorithms.names()
        else arm
    )


def run_arms(
    common: dict[str, Any],
    arms: Iterable[str],
    seeds: Sequence[int],
    publics: Sequence[str],
    controls: Iterable[str] = CONTROLS,
    own: Mapping[str, dict[str, Any]] | None = None,
    folder: Path | None = None,
) -> list[History]:
    """Compute or fetch the runs of a table, for each seed, arm and public set, in this order.

    An arm that never looks at public data is run once for all public sets. A tuned arm is left out
    where the profile has no tuned protocol, and one with its authors' values where the algorithm
    has these anyway, since nothing of it was tuned on the profile. Of an arm whose algorithm does
    not serve everybody, the others take no part.

    Args:
        common: settings of all runs.
        arms: algorithms by name, "<algorithm>, tuned", or "<algorithm>, authors' values".
        seeds, publics: as in ``Settings``; no seeds are those of ``page_seeds``.
        controls: arms that follow those asked for, unless they are among them.
        own: arms that follow them, "<algorithm>, <setting>", each with settings of its own.
        folder: of the results.

    Raises:
        ValueError: settings that no run can have.
        NotStored, and what else ``run_all`` raises.
    """
    seeds, compute = page_seeds(seeds, folder)
    own = own or {}
    planned = [
        ((name, public), name, settings)
        for seed in seeds
        for name in [*dict.fromkeys((*arms, *controls)), *own]
        for public in (publics[:1] if is_blind(name) else publics)
        if (
            settings := settings_of(
                {**common, "seed": seed, "public": public, **own.get(name, {})},
                algorithm_of(name) if name in own else name,
            )
        )
    ]
    return [history for _, history in obtained(planned, compute)]


def obtained(
    planned: Sequence[tuple[Key, str, Settings]], compute: bool = True, whole: bool = True
) -> list[tuple[Key, History]]:
    """Compute or fetch planned runs, each given by a key, its arm and settings.

    Where nothing is to be computed, those that are stored stand for their key. A key of which none
    is stored is left out: with ``whole`` only if the paper does not have the arm, without unless no
    key has one.
    """
    found: Sequence[History | None]
    if compute and may_compute():
        found = run_all([settings for *_, settings in planned])
    else:
        with cached_digests():
            found = [stored(settings) for *_, settings in planned]
    named = [
        (key, replace(history, setting=setting_of(arm)))
        for (key, arm, _), history in zip(planned, found, strict=True)
        if history
    ]
    there = {key for key, _ in named}
    lacking = [one for one in planned if one[0] not in there]
    papers = [one for _, arm, one in lacking if not added(arm) and setting_of(arm) in _PAPERS]
    if needed := papers if whole or not there else []:
        run_all(needed)  # which computes them, or says what is missing
        return obtained(planned, compute)
    for key in dict.fromkeys(key for key, *_ in lacking):
        _log.info("%s is left out: none of its runs is stored", " on ".join(map(str, key)))
    return named


def settings_of(given: dict[str, Any], arm: str) -> Settings | None:
    """The settings of an arm's run; None if its algorithm serves none of the users, if the profile
    has no tuned protocol for it, or if the arm is the algorithm as it is anyway.

    Raises:
        ValueError: there is no such setting of an arm, or no run can have these settings.
    """
    if (setting := setting_of(arm)) not in ("", TUNED, AUTHORS):
        raise ValueError(
            f"{arm!r}: an arm is an algorithm, or '<algorithm>, {TUNED}', or \"<algorithm>,"
            f' {AUTHORS}"'
        )
    alone, algorithm = parse({**given, "algorithm": "local"}), algorithms.get(algorithm_of(arm))
    served = [user.number for user in alone.members if algorithm.serves(user.task)]
    if not served or setting == TUNED and not tuned_tasks(alone.profile):
        return None
    some = {"users": served} if len(served) < len(alone.members) else {}
    tuned = {"protocol": TUNED} if setting == TUNED else {}
    usual = parse({**given, "algorithm": algorithm.name, **some, **tuned})
    if setting != AUTHORS:
        return usual
    options = {**usual.options, **algorithm.named(algorithm.Options()), **given.get("options", {})}
    authors = usual.model_copy(update={"options": options})
    return None if algorithm.options_of(authors) == algorithm.options_of(usual) else authors


def alignment_steps(settings: Settings) -> int:
    """Steps on public data that a user takes in a run of FedMuscle: R x T x the batches of the
    public set.
    """
    return (
        settings.rounds
        * settings.cl_epochs
        * len(batches(settings.public_size, settings.public_batch, "count"))
    )
