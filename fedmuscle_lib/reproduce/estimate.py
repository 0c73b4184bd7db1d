"""Runs and minutes of notebooks, by the provenance of the reference: nothing is executed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fedmuscle_lib.core.notebooks import committed, runs_of
from fedmuscle_lib.reproduce.plan import folder_of


def needed(path: Path, given: dict[str, Any], reference: Path) -> dict[str, float]:
    """Return the seconds of the notebook's runs by their addresses; none if the reference has no
    results of these parameters.

    Args:
        given: the notebook's parameters, where they are not its own.
        reference: the profile's folder in figures/.
    """
    folder = reference / folder_of(path, {n: v for n, v in given.items() if n != "publics"})
    wanted, found = committed(path) | given, {}
    for run in runs_of(folder):
        seed, public = run["settings"]["seed"], run["settings"].get("public")
        publics = wanted.get("publics", [public])
        if seed in (wanted.get("seeds") or [seed]) and public in (None, *publics):
            found[run["address"]] = run["seconds"]
    return found


def announcement(
    planned: Iterable[tuple[Path, dict[str, Any]]], reference: Path, at_a_time: int
) -> list[str]:
    """Return lines that say what the grid is about to run, and for how long.

    Args:
        planned: notebooks and what they are given.
        reference: the profile's folder in figures/.
    """
    from fedmuscle_lib.runs import default_store

    stored = {one.address for one in default_store().entries() if one.done and not one.shipped}
    lines: list[str] = []
    left: dict[str, float] = {}
    for path, given in planned:
        runs = needed(path, given, reference)
        asks = _told(runs) if runs else "time unknown: the reference has no such results"
        lines.append(f"{folder_of(path, given)}: {asks}")
        left |= {one: s / at_a_time for one, s in runs.items() if one not in stored}
    at_once = f"{at_a_time} notebooks at a time on the reference's machine"
    return [*lines, f"Of known times to compute: {_told(left)}, {at_once}"]


def _told(runs: dict[str, float]) -> str:
    return f"{len(runs)} runs, {sum(runs.values()) / 60:.0f} min"
