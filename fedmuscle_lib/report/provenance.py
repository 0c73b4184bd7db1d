"""CSV files, and the provenance of the runs behind them, whatever the federation."""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from fedmuscle_lib.core.files import read_json, write
from fedmuscle_lib.core.notebooks import notebook_of
from fedmuscle_lib.core.versions import SOURCE
from fedmuscle_lib.runs import History

_MADE_WITH = ("python", "torch", "transformers", "peft", "processor", "machine", "device", "source")


def save(frame: pd.DataFrame, path: Path) -> None:
    """Write a CSV file without index, whole or not at all; four decimals are more than any metric here has."""
    write(path, frame.round(4).to_csv(index=False))


def option(name: str, value: object) -> str:
    """What gives a notebook's parameter or a setting to ``reproduce``, after a blank."""
    return " -p " + shlex.quote(f"{name}={json.dumps(value)}")


def provenance_of(
    histories: Sequence[History[Any]],
    folder: str,
    names: Sequence[Mapping[str, Any]],
    usual: Mapping[str, Any],
    unsaid: Collection[str],
    data: Mapping[str, Any],
) -> dict[str, Any]:
    """The command that repeats the runs and, for each of them, what it was, its address in the store, how long it took and on what.

    The settings in which runs differ stand with each of them; the command has the first one's.

    Args:
        folder: name of a folder of results, which begins with that of the notebook.
        names: of each run, what tells it from the others, such as algorithm and seed.
        usual: the values that settings have without a word of the command's, as JSON values.
        unsaid: settings that the command never names.
        data: see :func:`manifests`.
    """
    seeds = ",".join(map(str, sorted({history.settings.seed for history in histories})))
    own = [history.settings.model_dump(mode="json") for history in histories]
    differing = [name for name in usual if name not in names[0] and any(o[name] != own[0][name] for o in own)]
    changed = {name: value for name, value in own[0].items() if name not in unsaid and value != usual[name]}
    overrides = "".join(option(name, value) for name, value in changed.items())
    made_with = [{name: h.provenance[name] for name in _MADE_WITH if name in h.provenance} for h in histories]
    runs = [
        {**own_name}
        | {name: o[name] for name in differing}
        | {"address": h.provenance.get("address"), "origin": h.origin, "versions": h.provenance.get("versions")}
        | {name: h.provenance[name] for name in ("seconds", "finished", "peak_memory_bytes")}
        for h, o, own_name in zip(histories, own, names, strict=True)
    ]
    chosen = f"{notebook_of(folder)} --profile {histories[0].settings.profile} --seeds {seeds}"
    return {
        "command": f"python -m fedmuscle_lib reproduce {chosen}{overrides}",
        "made_with": [fact for i, fact in enumerate(made_with) if fact not in made_with[:i]],
        "data": data,
        "runs": runs,
    }


def manifests(data_dir: Path, folders: Iterable[str]) -> dict[str, dict[str, Any]]:
    """By folder below ``data_dir``, what the manifest says that ``data_prep`` left there.

    None for the embedded world, which is the same everywhere.
    """
    found = {}
    for folder in sorted(set(folders)):
        path = data_dir / folder / "manifest.json"
        if path.exists():
            manifest = read_json(path)
            found[folder] = {name: manifest.get(name) for name in ("dataset", "official", "counts", "sizes")}
    return found


def spread(seeds: Collection[int]) -> str:
    """A sentence: what ± and brackets mean in a table over these seeds."""
    if len(seeds) == 1:
        return "One seed: there is no ± and no interval, and a difference may be chance."
    return f"± is the standard deviation over {len(seeds)} seeds (ddof = 0), brackets the 95 % t interval."


def named(seeds: Collection[int]) -> str:
    """Such as "seed 0" or "seeds 0, 1, 2"."""
    return f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"


def origins(histories: Sequence[History[Any]]) -> list[str]:
    """Sentences: how many of the runs were shipped and how many computed here, from which sources, and each caveat once."""
    n, shipped = len(histories), sum(history.origin == "shipped" for history in histories)
    sentences = [f"{shipped} of {n} runs were shipped, {n - shipped} computed here."]
    if (sources := len({history.provenance.get("source") for history in histories})) > 1:
        sentences.append(f"They come from {sources} states of the source code, which have the same versions of the arithmetic.")
    own = [history.provenance.get("source", SOURCE) for history in histories if history.origin == "computed"]
    if earlier := sum(source != SOURCE for source in own):
        sentences.append(
            f"{earlier} of those computed here are by another state of the source code than the present one; "
            "`python -m fedmuscle_lib runs delete` makes room to compute them again."
        )
    caveats = dict.fromkeys(caveat for history in histories for caveat in history.caveats)
    return [*sentences, f"Of the shipped runs: {'; '.join(caveats)}."] if caveats else sentences
