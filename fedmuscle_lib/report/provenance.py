"""CSV files, and the provenance of the runs behind them, whatever the federation."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from fedmuscle_lib.core.files import MANIFEST, read_json, write
from fedmuscle_lib.core.notebooks import PROVENANCE, notebook_of
from fedmuscle_lib.runs import History

_MADE_WITH = ("python", "torch", "transformers", "peft", "processor", "machine", "device", "source")
_DATA = {"mini": "generated", "small": "real", "paper": "the paper's"}  # a profile's, in words
_NO_DATA = ("paper_audit", "theory")  # notebooks
_VARIANTS = {  # folders of results, or what their names add to their notebook's
    "mini/controls": "equal models",
    "small/controls": "CNNs",
    "directed": "unequal models",
    "directed_setup1": "equal models",
    "directed_setup2_public=flickr30k": "ten users",
    "directed_setup_noniid_users=1,2,4,5,7,8,10,11": "unlike data",
    "setup1_cls": "CLS token",
    "setup1_unequal": "unequal models",
    "setup1_vit": "ViTs, last blocks",
    "setup1_vit_paper": "ViTs, all blocks",
    "public=voc_sizes=640_R=50,150_epochs=150_setup1_vit_paper": "ViTs, all blocks, 150 epochs",
    "methods=fedloge,fedavg,fedetf,fedrod_imbalance=0.02": "imbalance 0.02",
    "methods=fedloge,fedavg_norms=0.1_data=cifar100_lt_network=wide_cnn": "CIFAR-100",
}


class Sentences(pd.DataFrame):
    """A folded table with whole sentences, which pandas cuts behind 50 characters."""

    def _repr_html_(self) -> str:
        with pd.option_context("display.max_colwidth", None):
            table = super()._repr_html_()
        return f"<details><summary>{len(self)} rows</summary>{table}</details>"


def world_in_words(folder: Path) -> str:
    """The world of a folder of results, such as "real, ViTs, all blocks"."""
    profile, name = folder.parts[-2:]
    if notebook_of(name) in _NO_DATA:
        return "needs no data"
    own = name.removeprefix(notebook_of(name)).removeprefix("_")
    known = [_VARIANTS[key] for key in (f"{profile}/{name}", name, own) if key in _VARIANTS]
    return ", ".join(filter(None, [_DATA.get(profile, profile), *(known or [own])[:1]]))


def save(frame: pd.DataFrame, path: Path) -> None:
    """Write a CSV file without index, whole or not at all; four decimals are more than any metric
    here has.
    """
    write(path, frame.round(4).to_csv(index=False))


def write_results(
    frames: Mapping[str, pd.DataFrame], provenance: Mapping[str, Any], folder: Path
) -> None:
    """Write each frame as ``<its name>.csv``, and the provenance of the runs behind them."""
    for name, frame in frames.items():
        save(frame, folder / f"{name}.csv")
    write_provenance(provenance, folder)


def write_without_runs(
    frames: Mapping[str, pd.DataFrame],
    folder: Path,
    notebook: str,
    profile: str,
    **parameters: object,
) -> None:
    """Write each frame as ``<its name>.csv``, and a provenance without runs: the command that makes
    the folder.
    """
    options = "".join(option(name, value) for name, value in parameters.items())
    command = f"python -m fedmuscle_lib reproduce {notebook} --profile {profile}{options}"
    write_results(frames, {"command": command, "runs": []}, folder)


def option(name: str, value: object) -> str:
    """Return what gives a notebook's parameter or a setting to ``reproduce``, after a blank."""
    return " -p " + shlex.quote(f"{name}={json.dumps(value)}")


def changed(
    histories: Sequence[History[Any]], algorithm: Callable[[str], Any]
) -> list[tuple[str, Any, Any]]:
    """Return settings and algorithms' own options that are not the default: name, value, and
    default. An arm's setting is in its name.

    Args:
        algorithm: the class of an algorithm, by its name.
    """
    first = histories[0].settings
    rows = [
        (name, getattr(first, name), field.default)
        for name, field in type(first).model_fields.items()
        if name not in first.aside() | {"options"}
    ]
    for one in {
        run.settings.algorithm: run.settings for run in histories if not run.setting
    }.values():
        usual = algorithm(one.algorithm).Options().model_dump()
        rows += [
            (f"{one.algorithm}.{own}", value, usual[own]) for own, value in one.own_options.items()
        ]
    return [row for row in rows if row[1] != row[2]]


def write_by_algorithm(
    frames: Mapping[str, pd.DataFrame],
    histories: Sequence[History[Any]],
    folder: Path,
    folders: Iterable[str],
) -> None:
    """Write each frame as ``<its name>.csv``, and the provenance of runs whose arms are algorithms,
    and whose settings have the usual values of their profile.

    Args:
        folders: what the runs read below ``data_dir``.
    """
    s = histories[0].settings
    usual = type(s)(profile=s.profile).model_dump(mode="json")
    unsaid, data = s.aside() - {"evaluate_every"}, manifests(s.data_dir, folders)
    write_results(frames, provenance_of(histories, folder.name, usual, unsaid, data), folder)


def provenance_of(
    histories: Sequence[History[Any]],
    folder: str,
    usual: Mapping[str, Any],
    unsaid: Collection[str],
    data: Mapping[str, Any],
) -> dict[str, Any]:
    """The command that repeats the runs, what made them, and the runs themselves, as
    ``core.notebooks.runs_of`` reads them.

    A fact that all runs have stands in ``shared``, one that an arm's runs have in ``arms``, and the
    others with each of ``runs``. The command has the settings that all runs share.

    Args:
        folder: name of a folder of results, which begins with that of the notebook.
        usual: the values that settings have without a word of the command's, as JSON values.
        unsaid: settings that the command never names.
        data: see :func:`manifests`.
    """
    seeds = ",".join(map(str, sorted({history.settings.seed for history in histories})))
    given = [history.settings.model_dump(mode="json") for history in histories]
    shared = {
        name: value
        for name, value in given[0].items()
        if all(one.get(name) == value for one in given)
    }
    overrides = "".join(
        option(name, value)
        for name, value in shared.items()
        if name not in unsaid and value != usual[name]
    )
    made_with = [
        {name: h.provenance[name] for name in _MADE_WITH if name in h.provenance} for h in histories
    ]
    facts = [
        {
            "arm": h.arm,
            "system": h.settings.system,
            "settings": h.settings.recorded(),
            "origin": h.origin,
        }
        | {
            name: h.provenance[name]
            for name in ("address", "versions", "seconds", "finished", "peak_memory_bytes")
        }
        for h in histories
    ]
    chosen = f"{notebook_of(folder)} --profile {histories[0].settings.profile} --seeds {seeds}"
    return {
        "command": f"python -m fedmuscle_lib reproduce {chosen}{overrides}",
        "made_with": [fact for i, fact in enumerate(made_with) if fact not in made_with[:i]],
        "data": data,
        **_factored(facts),
    }


def _factored(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    shared = _common(runs)
    arms = {
        run["arm"]: _common([other for other in runs if other["arm"] == run["arm"]]) for run in runs
    }
    own = {
        name: _rest({key: fact for key, fact in facts.items() if key != "arm"}, shared)
        for name, facts in arms.items()
    }
    return {
        "shared": shared,
        "arms": own,
        "runs": [{"arm": run["arm"]} | _rest(run, arms[run["arm"]]) for run in runs],
    }


def _common(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The facts that all runs have; of a fact that is a mapping, the items that all have."""
    found = {}
    for name, value in runs[0].items():
        mappings = [run[name] for run in runs if isinstance(run.get(name), dict)]
        if all(name in run and run[name] == value for run in runs):
            found[name] = value
        elif len(mappings) == len(runs) and (items := _common(mappings)):
            found[name] = items
    return found


def _rest(facts: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
    """``facts`` without ``known``, which ``runs_of`` puts back."""
    new = {
        name: value for name, value in facts.items() if name not in known or known[name] != value
    }
    return {
        name: _rest(value, known[name]) if isinstance(value, dict) and name in known else value
        for name, value in new.items()
    }


def write_provenance(provenance: Mapping[str, Any], folder: Path) -> None:
    """Write ``provenance.json``, whole or not at all, with a line for each run."""
    lines = re.sub(
        r"\n {3,}|\n {2}(?=[]}])", " ", json.dumps(provenance, indent=1)
    )  # a string has no newline in JSON
    write(folder / PROVENANCE, lines + "\n")


def manifests(data_dir: Path, folders: Iterable[str]) -> dict[str, dict[str, Any]]:
    """By folder below ``data_dir``, what the manifest says that ``data_prep`` left there.

    None for the embedded world, which is the same everywhere.
    """
    found = {}
    for folder in sorted(set(folders)):
        path = data_dir / folder / MANIFEST
        if path.exists():
            manifest = read_json(path)
            found[folder] = {
                name: manifest.get(name) for name in ("dataset", "official", "counts", "sizes")
            }
    return found


def spread(seeds: Collection[int]) -> str:
    """A sentence: what ± and brackets mean in a table over these seeds."""
    if len(seeds) == 1:
        return "One seed: there is no ± and no interval, and a difference may be chance."
    return (
        f"± is the standard deviation over {len(seeds)} seeds (ddof = 0), brackets the 95 % t"
        " interval."
    )


def named(seeds: Collection[int]) -> str:
    """Such as "seed 0" or "seeds 0, 1, 2"."""
    return f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"


def seeds_taken(histories: Sequence[History[Any]], label: Callable[[str], str] = str) -> str:
    """A sentence: the seeds of these runs, and the arms that have fewer, by their labels."""
    seeds: dict[str, set[int]] = {}
    for run in histories:
        seeds.setdefault(run.arm, set()).add(run.settings.seed)
    most = sorted(set().union(*seeds.values()))
    fewer = [
        f"{label(arm)} {named(sorted(own))}" for arm, own in seeds.items() if len(own) < len(most)
    ]
    return f"{named(most).capitalize()}" + (f"; {', '.join(fewer)}." if fewer else ".")


def described(histories: Sequence[History[Any]], *parts: str) -> str:
    """The line above a figure: the world, ``parts``, the seeds, and what intervals are in it."""
    profile, seeds = (
        histories[0].settings.profile,
        sorted({history.settings.seed for history in histories}),
    )
    several = "95\N{NO-BREAK SPACE}% intervals"
    intervals = several if len(seeds) > 1 else "one seed has no interval"
    data = f"{_DATA.get(profile, '')} data".strip().capitalize()
    return " · ".join(
        [
            f"{data} (profile {profile})",
            *parts,
            named(seeds).replace(" ", "\N{NO-BREAK SPACE}"),
            intervals,
        ]
    )


def noted(histories: Sequence[History[Any]], *sentences: str) -> str:
    """A Markdown line under a table: the sentences, profile and seeds, the meaning of ± and
    brackets, and where the runs come from.
    """
    seeds = sorted({history.settings.seed for history in histories})
    world = f"Profile `{histories[0].settings.profile}`, {named(seeds)}."
    return " ".join([*sentences, world, spread(seeds), *origins(histories)])


def origins(histories: Sequence[History[Any]]) -> list[str]:
    """Sentences: how many of the runs were shipped and how many computed here, and each caveat
    once.
    """
    n, shipped = len(histories), sum(history.origin == "shipped" for history in histories)
    sentences = [f"{shipped} of {n} runs were shipped, {n - shipped} computed here."]
    caveats = dict.fromkeys(caveat for history in histories for caveat in history.caveats)
    return [*sentences, f"Of the shipped runs: {'; '.join(caveats)}."] if caveats else sentences
