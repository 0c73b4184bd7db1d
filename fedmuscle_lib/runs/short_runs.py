"""Fingerprints: what short runs give, by which a changed arithmetic is noticed.

Each system says which short runs go through all that it computes, and keeps what they gave in a
``fingerprints.json`` of its own. ``python -m fedmuscle_lib.<room>.fingerprints`` records them,
after a version was raised or an algorithm was added. docs/results.md says what could still slip
through.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from fedmuscle_lib.core import files
from fedmuscle_lib.core.versions import Versioned, versions
from fedmuscle_lib.runs.loop import Listener, train
from fedmuscle_lib.runs.settings import S
from fedmuscle_lib.runs.system import system_of


def fingerprint(settings: S, families: Iterable[type] = ()) -> dict[str, Any]:
    """Versions (without sources) of a short run and its models' families, processor, rounding,
    losses, metrics and bytes.
    """
    every = system_of(settings).key(settings)["versions"] | versions(*families)
    record = train(settings, Listener())
    tables = record.tables
    losses = tables["losses"].iloc[:, 2:].astype(object)  # without the round and whose they are
    return {
        "versions": dict(
            sorted((name, version.partition(" ")[0]) for name, version in every.items())
        ),
        "processor": record.provenance["processor"],
        "rounding": record.provenance["rounding"],
        "losses": losses.where(losses.notna(), None).to_numpy().tolist(),
        "metrics": tables["metrics"].value.tolist(),
        "bytes": int(tables["costs"].filter(like="_bytes").to_numpy().sum()),
    }


def shipped(package: Any) -> dict[str, Any]:
    """Return the registered classes of a package by name, such as a system's algorithms, that lie
    in the package's own folder.

    What a test or a user has put elsewhere is not among them.
    """
    own = {
        name: Path(sys.modules[package.get(name).__module__].__file__ or "")
        for name in package.names()
    }
    return {
        name: package.get(name)
        for name, file in own.items()
        if file.parent == Path(package.__file__).parent
    }


def own_options(shipped: Mapping[str, Any]) -> dict[str, Any]:
    """The options of such classes at their own defaults, whatever a profile tuned, by the names
    that settings give them.
    """
    return {
        name: value
        for kind in shipped.values()
        for name, value in kind.named(kind.Options()).items()
    }


def rounded_alike(now: dict[str, Any], recorded: dict[str, Any]) -> bool:
    """Return whether the losses of two fingerprints differ by no more than another kind of
    processor makes of them, a thousandth.
    """
    pairs = zip(now["losses"], recorded["losses"], strict=True)
    return all(_close(ours, theirs) for rows in pairs for ours, theirs in zip(*rows, strict=True))


def _close(ours: float | None, theirs: float | None) -> bool:
    return (
        ours is theirs
        if ours is None or theirs is None
        else math.isclose(ours, theirs, rel_tol=1e-3)
    )


def modules_of(classes: Iterable[type]) -> list[str]:
    """The library's modules that hold the classes and what they refine, as far as it has versions,
    in alphabetical order.
    """
    bases = {
        base
        for each in classes
        for base in each.__mro__
        if issubclass(base, Versioned) and base is not Versioned
    }
    return sorted(
        {base.__module__ for base in bases if base.__module__.startswith("fedmuscle_lib.")}
    )


def record(
    path: Path, runs: Mapping[str, S], compute: Callable[[S], dict[str, Any]], modules: list[str]
) -> None:
    """Compute the fingerprint of every run, by name, and write the file.

    Raises:
        ValueError: a loss moved by more than rounding, and no version was raised.
    """
    before = json.loads(path.read_text(encoding="utf8"))["fingerprints"] if path.exists() else {}
    found = {}
    for name, settings in runs.items():
        print(f"{name} ...", flush=True)
        now = found[name] = compute(settings)
        if (
            name in before
            and now["versions"] == before[name]["versions"]
            and not rounded_alike(now, before[name])
        ):
            raise ValueError(
                f"{name}: a loss moved by more than rounding: raise the version of what computes it"
                " (fedmuscle_lib/core/versions.py)"
            )
    files.write(path, json.dumps({"modules": modules, "fingerprints": found}, indent=1) + "\n")
