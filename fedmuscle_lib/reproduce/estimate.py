"""Runs and minutes of notebooks, by the provenance of the reference: nothing is executed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from fedmuscle_lib.core.notebooks import (
    FIGURES,
    NOTEBOOKS,
    UNNAMED,
    committed,
    reference_parameters,
    runs_of,
)
from fedmuscle_lib.reproduce.plan import ALL, folder_of, select


def needed(path: Path, given: dict[str, Any], reference: Path) -> dict[str, float] | None:
    """Return the seconds of the notebook's runs by their addresses; None if the reference has no
    results of these parameters.

    A seed that the reference does not have is taken to need as long as its last one, at addresses
    that nothing has.

    Args:
        given: the notebook's parameters, where they are not its own.
        reference: the profile's folder in figures/.
    """
    folder = reference / folder_of(path, given)
    if not (runs := runs_of(folder)):
        return None
    usual = committed(path)
    theirs, wanted = usual | reference_parameters(folder), usual | given
    if any(wanted[name] != theirs[name] for name in usual if name not in UNNAMED):
        return None
    by_seed: dict[int, list[dict[str, Any]]] = {}
    for run in runs:
        by_seed.setdefault(run["settings"]["seed"], []).append(run)
    last = max(by_seed)
    found: dict[str, float] = {}
    for seed in wanted.get("seeds", by_seed):
        unknown = "" if seed in by_seed else f", seed {seed}"
        found |= {
            run["address"] + unknown: run["seconds"] for run in by_seed.get(seed, by_seed[last])
        }
    return found


def announcement(
    planned: Iterable[tuple[Path, dict[str, Any]]],
    reference: Path,
    at_a_time: int,
    shipped_only: bool,
) -> list[str]:
    """Return lines that say what the grid is about to run, and for how long.

    Args:
        planned: notebooks and what they are given.
        reference: the profile's folder in figures/.
    """
    if shipped_only:
        names = ", ".join(folder_of(path, given) for path, given in planned)
        return [
            "Draws from shipped runs and from those stored here, computing nothing, in about half"
            f" a minute each: {names}"
        ]
    here = _computed_here()
    lines: list[str] = []
    everything: dict[str, float] = {}
    for path, given in planned:
        name, runs = folder_of(path, given), needed(path, given, reference)
        if runs is None:
            asks = (
                "time unknown, since the reference has no results of these parameters"
                if "seeds" in committed(path)
                else "no runs"
            )
            lines.append(f"{name}: {asks}")
            continue
        stored = len(runs.keys() & here.keys())
        lines.append(
            f"{name}: {_count(len(runs))}, {_time(runs.values())}"
            + (f"; {stored} computed here before" if stored else "")
        )
        everything |= runs
    if everything:
        left = [seconds for address, seconds in everything.items() if address not in here]
        pace = [
            here[address] / seconds
            for address, seconds in everything.items()
            if address in here and seconds
        ]
        whose = "at this machine's pace" if pace else "at the pace of the reference's machine"
        at_once = f", {at_a_time} notebooks at a time" if at_a_time > 1 else ""
        time = _time(seconds * (median(pace) if pace else 1) / at_a_time for seconds in left)
        lines.append(
            f"Of known times altogether {_count(len(left))} to compute, some for several notebooks:"
            f" about {time} {whose}{at_once}"
        )
    return [
        *lines,
        (
            "Shipped runs are computed again; `make figures`, or --shipped-only, draws them instead"
            " and computes nothing"
        ),
    ]


def overview(profiles: Sequence[str], folder: Path = NOTEBOOKS, figures: Path = FIGURES) -> str:
    """Return a Markdown table that says which notebooks are shown without computing: a row a
    notebook, a column a profile.
    """
    lines = [["notebook", *(f"`{profile}`" for profile in profiles)], ["---"] * (1 + len(profiles))]
    for path in select([ALL], folder):
        if "seeds" in committed(path):  # it asks for runs
            lines.append(
                [
                    f"[{path.stem}]({path.name})",
                    *(_told(path, figures / profile) for profile in profiles),
                ]
            )
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _told(path: Path, reference: Path) -> str:
    if (runs := needed(path, {"profile": reference.name}, reference)) is not None:
        return f"shown at once ({_count(len(runs))}; {_time(runs.values())} to compute)"
    usual = committed(path)
    theirs = {
        name: value
        for name, value in reference_parameters(reference / path.stem).items()
        if name not in UNNAMED
    }
    changed = ", ".join(
        f"`{name} = {value!r}`" for name, value in theirs.items() if usual.get(name) != value
    )
    return f"shown at once with {changed}" if changed else "to compute"


def _computed_here() -> dict[str, float]:
    """Seconds of the runs that were computed on this machine, by address."""
    from fedmuscle_lib.runs import default_store

    records = {
        entry.address: entry.read()
        for entry in default_store().entries()
        if entry.done and not entry.shipped
    }
    return {address: record.provenance["seconds"] for address, record in records.items() if record}


def _count(runs: int) -> str:
    return f"{runs} run{'s' * (runs != 1)}"


def _time(seconds: Iterable[float]) -> str:
    minutes = sum(seconds) / 60
    return (
        f"{minutes / 60:.1f} h"
        if minutes >= 100
        else f"{minutes:.0f} min"
        if minutes >= 1
        else "less than a minute"
    )
