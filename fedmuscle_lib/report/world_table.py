"""The table of worlds: what a profile's federation is like in numbers that have no unit, beside
other profiles' and the paper's.

Each run of ``controls`` writes its own world to ``world.csv``. Those of the committed references
stand beside it, so that no other profile's runs, data or checkpoints are needed. The same goes for
``delta.csv``, in the figure of worlds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from fedmuscle_lib.core.files import ROOT
from fedmuscle_lib.core.notebooks import UNNAMED, flat, notebook_of, reference_parameters
from fedmuscle_lib.fedmuscle.arms import BASELINE, alignment_steps, local_steps
from fedmuscle_lib.fedmuscle.settings import Settings, parse
from fedmuscle_lib.report.delta import delta, table
from fedmuscle_lib.report.paper import paper_table
from fedmuscle_lib.report.provenance import DATA
from fedmuscle_lib.report.statistics import side_of_zero, with_interval
from fedmuscle_lib.report.write import USUAL_SETUP
from fedmuscle_lib.runs.history import History

WORLD_COLUMNS = ["measure", "of", "value", "ci_low", "ci_high"]
_ONE_SHOT = "one-shot accuracy of frozen features (%)"
_GAINS = {
    "head_only": "head only over local training (%)",
    "probe": "logistic probe over local training (%)",
}
_LOCAL, _ALIGNMENT, _PER_LOCAL = "local steps", "alignment steps", "alignment steps per local step"
_SPREAD = "largest mean local cell of a task over its smallest"
_SIGNS = {
    name: f"Δ of {name}" for name in ("fedmuscle", "self", "frozen_peers", "anchored", "shuffled")
}
_MODELS = {
    ("small", USUAL_SETUP): "CNNs",
    ("small", "setup1_vit_paper"): "ViTs, all blocks",
    ("small", "setup1_vit"): "ViTs, last blocks",
    ("small", "setup1_unequal"): "unequal models",
    ("mini", USUAL_SETUP): "equal models",
    ("mini", "setup1_unequal"): "unequal models",
    ("mini", "setup2"): "ten users",
    ("mini", "setup_noniid"): "unlike data",
}


def world(histories: Sequence[History], shots: Mapping[str, float]) -> pd.DataFrame:
    """``WORLD_COLUMNS``: the runs' federation in numbers.

    ``of`` is the checkpoint or the task that a value is about, if it is about one. Steps are a
    user's in the whole run.

    Args:
        shots: one-shot accuracy by checkpoint (``fedmuscle_lib.fedmuscle.one_shot``).
    """
    settings = histories[0].settings
    deltas = delta(histories).rename(columns={"algorithm": "arm", "delta": "value"})
    local = table(histories).query("algorithm == @BASELINE")
    rows = [
        {"measure": _ONE_SHOT, "of": checkpoint, "value": value}
        for checkpoint, value in shots.items()
    ]
    return _together(
        rows,
        _of_deltas(deltas, _GAINS),
        _steps(settings),
        _spread(local),
        _of_deltas(deltas, _SIGNS),
    )


def shipped_one_shot(
    histories: Sequence[History], figures: Path = ROOT / "figures"
) -> dict[str, float]:
    """One-shot accuracy by checkpoint as the committed ``world.csv`` of these runs has it; empty
    where one of them was computed here.
    """
    own = _references("world.csv", figures).get(_key(histories[0].settings))
    if own is None or any(history.origin != "shipped" for history in histories):
        return {}
    return own[own.measure == _ONE_SHOT].set_index("of").value.to_dict()


def papers_world(settings: Settings) -> pd.DataFrame:
    """:func:`world` of the paper, as far as it prints the numbers, in its setup of which the one of
    these settings is a variant.
    """
    setup = settings.setup.partition("_")[0]
    cells, deltas = (
        found[found.setup == setup]
        for found in (paper_table("table1", "table2"), paper_table("table1_delta", "table2_delta"))
    )
    public = settings.public if settings.public in set(deltas.public) else deltas.public.iloc[0]
    deltas = deltas[deltas.public == public].rename(
        columns={"algorithm": "arm", "delta_paper": "value"}
    )
    paper = parse({"profile": "paper", "setup": setup, "public": public})
    local = cells[(cells.algorithm == BASELINE) & (cells.public == public)]
    return _together(_steps(paper), _spread(local), _of_deltas(deltas, _SIGNS))


def worlds(own: pd.DataFrame, settings: Settings, figures: Path = ROOT / "figures") -> pd.DataFrame:
    """The table of worlds: a row a measure; a column for each committed ``world.csv``, for ``own``
    in place of its profile's, setup's and protocol's, and for the paper. All cells are texts.

    A sign is 0 where the 95 % interval includes 0, and stands in brackets where there is no
    interval.
    """
    found = _references("world.csv", figures) | {_key(settings): own}
    named = {
        (profile if setup == USUAL_SETUP else f"{profile}, {setup}"): found[profile, setup]
        for profile, setup in _in_order(found)
    }
    shown = {
        name: _cells(world)
        for name, world in (named | {"the paper": papers_world(settings)}).items()
    }
    whole = pd.DataFrame(shown).reindex(_FORMATS).dropna(how="all").fillna("")
    about = {
        measure: " / ".join(rows.of.dropna())
        for measure, rows in own.groupby("measure")
        if measure != _ONE_SHOT
    }
    return whole.rename(
        index={measure: f"{measure}: {tasks}" for measure, tasks in about.items() if tasks}
    )


def delta_of_worlds(figures: Path = ROOT / "figures") -> pd.DataFrame:
    """``delta.csv`` of every committed reference of ``controls``, with a column ``world`` that
    names it in words.
    """
    found = _references("delta.csv", figures)
    return pd.concat(
        [
            found[world].assign(world=_in_words(world[0], _models(*world)))
            for world in _in_order(found)
        ],
        ignore_index=True,
    )


def world_in_words(folder: Path) -> str:
    """The world of a folder of results, such as "real, ViTs, all blocks" or "generated": its data,
    and its variant if it is one.
    """
    return _in_words(folder.parent.name, variant_in_words(folder))


def variant_in_words(folder: Path) -> str:
    """What sets a folder of results apart from others of its notebook; empty if it is the usual
    one.

    Folders of ``controls``, of which none is usual, are told by their models. Others are told by
    the parameters that differ from the usual folder's, such as "rounds 2"; lists, which choose
    arms, only where nothing else differs.

    Raises:
        DataError: naming the provenance that can't be read.
    """
    profile, notebook = folder.parent.name, notebook_of(folder.name)
    if notebook == "controls":
        return _models(profile, _setup(folder.name))
    if folder.name == notebook:
        return ""
    given, usual = (
        flat(reference_parameters(place)) for place in (folder, folder.with_name(notebook))
    )
    changed = {
        name: value
        for name, value in given.items()
        if name not in UNNAMED and usual.get(name) != value
    }
    told = {name: value for name, value in changed.items() if not isinstance(value, list)}
    told = told or {name: ", ".join(map(str, value)) for name, value in changed.items()}
    if "setup" in told and "protocol" in told:
        told["setup"] += f"_{told.pop('protocol')}"
    return ", ".join(
        _models(profile, value) if name == "setup" else f"{name} {value}"
        for name, value in told.items()
    )


def _in_words(profile: str, variant: str) -> str:
    return ", ".join(filter(None, [DATA.get(profile, profile), variant]))


def _models(profile: str, setup: str) -> str:
    return _MODELS.get((profile, setup), setup)


def _key(settings: Settings) -> tuple[str, str]:
    """The profile, and the setup with the protocol behind it, as folders of references are
    named.
    """
    return settings.profile, settings.setup + (
        "" if settings.protocol == "fixed" else f"_{settings.protocol}"
    )


def _setup(folder: str) -> str:
    return folder.removeprefix("controls").removeprefix("_") or USUAL_SETUP


def _references(file: str, figures: Path) -> dict[tuple[str, str], pd.DataFrame]:
    """A file of the committed references of ``controls``, by profile and setup."""
    return {
        (path.parts[-3], _setup(path.parent.name)): pd.read_csv(path)
        for path in figures.glob(f"*/controls*/{file}")
    }


def _in_order(found: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """The worlds of ``mini`` are last, since they model the others."""
    return sorted(found, key=lambda world: (world[0] == "mini", world))


def _together(*parts: Iterable[dict[str, Any]]) -> pd.DataFrame:
    return pd.DataFrame([row for rows in parts for row in rows], columns=WORLD_COLUMNS)


def _of_deltas(deltas: pd.DataFrame, measures: dict[str, str]) -> Iterator[dict[str, Any]]:
    """A row an arm of ``measures`` that has a Delta, with its interval if there is one."""
    for row in deltas.itertuples():
        if row.arm in measures:
            low, high = getattr(row, "ci_low", None), getattr(row, "ci_high", None)
            yield {"measure": measures[row.arm], "value": row.value, "ci_low": low, "ci_high": high}


def _steps(settings: Settings) -> Iterator[dict[str, Any]]:
    local = {user.task: local_steps(settings, user) for user in settings.members}
    aligned = alignment_steps(settings)
    yield from ({"measure": _LOCAL, "of": task, "value": n} for task, n in local.items())
    yield {"measure": _ALIGNMENT, "value": aligned}
    yield from (
        {"measure": _PER_LOCAL, "of": task, "value": aligned / n} for task, n in local.items() if n
    )


def _spread(local: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """A row a task that several users have, from the cells of local training."""
    for task, rows in local.groupby("task", sort=False):
        if len(rows) > 1:
            yield {"measure": _SPREAD, "of": task, "value": rows["mean"].max() / rows["mean"].min()}


def _cells(world: pd.DataFrame) -> dict[str, str]:
    return {
        measure: _FORMATS[measure](rows)
        for measure, rows in world.groupby("measure")
        if measure in _FORMATS
    }


def _range(rows: pd.DataFrame) -> str:
    low, high = rows.value.min(), rows.value.max()
    return f"{low:.1f}" if low == high else f"{low:.1f} to {high:.1f}"


def _listed(digits: int) -> Callable[[pd.DataFrame], str]:
    return lambda rows: " / ".join(f"{value:,.{digits}f}" for value in rows.value)


def _gain(rows: pd.DataFrame) -> str:
    return with_interval(*rows.iloc[0][["value", "ci_low", "ci_high"]])


def _sign(rows: pd.DataFrame) -> str:
    value, low, high = rows.iloc[0][["value", "ci_low", "ci_high"]].astype(float)
    alone = pd.isna(low)
    sign = {1: "+", -1: "−", 0: "0"}[
        side_of_zero(value, value) if alone else side_of_zero(low, high)
    ]
    return f"({sign})" if alone else sign


_FORMATS: dict[str, Callable[[pd.DataFrame], str]] = {
    _ONE_SHOT: _range,
    **dict.fromkeys(_GAINS.values(), _gain),
    _LOCAL: _listed(0),
    _ALIGNMENT: _listed(0),
    _PER_LOCAL: _listed(1),
    _SPREAD: _listed(2),
    **dict.fromkeys(_SIGNS.values(), _sign),
}
