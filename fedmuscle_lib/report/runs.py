"""The runs of a notebook's table: the arms that it asks for, and the controls that stand in every table."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any

from fedmuscle_lib import algorithms
from fedmuscle_lib.profiles import tuned_protocol
from fedmuscle_lib.report.arms import AUTHORS, TUNED, TUNED_BASELINE, History, algorithm_of, as_arm, is_blind, setting_of
from fedmuscle_lib.runs import may_compute, run_all, stored
from fedmuscle_lib.settings import Settings, parse

CONTROLS = (TUNED_BASELINE, "head_only", "self", "probe")
_log = logging.getLogger("fedmuscle")


def run_arms(
    common: dict[str, Any], arms: Iterable[str], seeds: Sequence[int], publics: Sequence[str], controls: Iterable[str] = CONTROLS
) -> list[History]:
    """Compute or fetch the runs of a table, for each seed, arm and public set, in this order.

    An arm that never looks at public data is run once for all public sets. A tuned arm is left out where the profile has no tuned protocol,
    and one with its authors' values where the algorithm has these anyway, since nothing of it was tuned on the profile. Of an arm whose
    algorithm does not serve everybody, the others take no part. Where nothing may be computed, a control that is not stored on every seed
    is left out, with a warning.

    Args:
        common: settings of all runs.
        arms: algorithms by name, "<algorithm>, tuned", or "<algorithm>, authors' values".
        seeds, publics: as in ``Settings``.
        controls: arms that follow those asked for, unless they are among them.

    Raises:
        ValueError: settings that no run can have.
        NotStored, and what else ``run_all`` raises.
    """
    asked, profile = list(arms), parse({**common, "algorithm": "local"}).profile
    runs: dict[tuple[str, str], list[Settings]] = {}
    for name in dict.fromkeys((*asked, *controls)):
        if setting_of(name) == TUNED and not tuned_protocol(profile):
            continue
        for public in publics[:1] if is_blind(name) else publics:
            if settings := [one for seed in seeds if (one := settings_of({**common, "seed": seed, "public": public}, name))]:
                runs[name, public] = settings
    if not may_compute():
        lacking = [key for key, settings in runs.items() if key[0] not in asked and not all(map(stored, settings))]
        for key in lacking:
            _log.warning("%s on %s is left out: not all of its runs are stored", *key)
            del runs[key]
    in_order = [(name, settings[i]) for i in range(len(seeds)) for (name, _), settings in runs.items()]
    finished = run_all([settings for _, settings in in_order])
    return [named(history, name) for (name, _), history in zip(in_order, finished, strict=True)]


def named(history: History, arm: str) -> History:
    """A run under the name of its arm."""
    return as_arm([history], setting)[0] if (setting := setting_of(arm)) else history


def settings_of(given: dict[str, Any], arm: str) -> Settings | None:
    """The settings of an arm's run; None if its algorithm serves none of the users, or if the arm is the algorithm as it is anyway.

    Raises:
        ValueError: there is no such setting of an arm, or no run can have these settings.
    """
    if (setting := setting_of(arm)) not in ("", TUNED, AUTHORS):
        raise ValueError(f"{arm!r}: an arm is an algorithm, or '<algorithm>, {TUNED}', or \"<algorithm>, {AUTHORS}\"")
    everyone, algorithm = parse({**given, "algorithm": "local"}).members, algorithms.get(algorithm_of(arm))
    served = [user.number for user in everyone if algorithm.serves(user.task)]
    if not served:
        return None
    some = {"users": served} if len(served) < len(everyone) else {}
    tuned = {"protocol": TUNED} if setting == TUNED else {}
    usual = parse({**given, "algorithm": algorithm.name, **some, **tuned})
    if setting != AUTHORS:
        return usual
    options = {**usual.options, **algorithm.named(algorithm.Options()), **given.get("options", {})}
    authors = usual.model_copy(update={"options": options})
    return None if algorithm.options_of(authors) == algorithm.options_of(usual) else authors
