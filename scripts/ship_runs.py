"""Copy the runs behind a reference's folders into the archive beside them, and say so in their
provenance; `make reference` does this.

    python scripts/ship_runs.py figures/mini/table7 ...
    python scripts/ship_runs.py --stored figures/mini  # finished runs without a page
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedmuscle_lib.core.files import read_json, write
from fedmuscle_lib.core.notebooks import OUTCOME, PROVENANCE, flat, reference_parameters, runs_of
from fedmuscle_lib.report.provenance import option, write_provenance
from fedmuscle_lib.runs import SYSTEMS, default_store, named
from fedmuscle_lib.runs.store import ARCHIVE, archive


def ship(folders: Sequence[Path]) -> None:
    """Ship the runs of these folders of results.

    Raises:
        FileNotFoundError: a folder is missing, or a run is not stored.
    """
    if missing := [folder for folder in folders if not folder.is_dir()]:
        raise FileNotFoundError(f"{missing[0]}: no such folder of results")
    for profile in dict.fromkeys(folder.parent for folder in folders):
        runs = {path.parent: _addresses(path.parent) for path in profile.glob(f"*/{PROVENANCE}")}
        wanted = {folder: own for folder, own in runs.items() if folder in folders}
        default_store().ship(set().union(*wanted.values()), profile / ARCHIVE)
        for folder, addresses in wanted.items():
            _mark(folder)
            print(f"{folder}: {len(addresses)} runs shipped")


def ship_stored(profile: Path) -> None:
    """Ship every finished run of this profile that is stored, whether a page names it or not."""
    store, path = default_store(), profile / ARCHIVE
    shipped = archive(path)
    finished = [entry for entry in store.entries() if entry.done and not entry.shipped]
    own = {e.address for e in finished if e.facts()["settings"].get("profile") == profile.name}
    store.ship(own, path)
    print(f"{path}: {len(own - shipped.keys())} more runs shipped")


def _addresses(folder: Path) -> set[str]:
    return {run["address"] for run in runs_of(folder)}


def _mark(folder: Path) -> None:
    """Say in a folder's provenance that its runs are shipped and what the notebook was given. Its
    page gets the command.
    """
    provenance = read_json(folder / PROVENANCE)
    parameters = _parameters(folder) or provenance.get("parameters", {})
    known = provenance.get("command", "")
    # the command of a provenance knows settings of runs alone
    options = [option(name, value) for name, value in flat(parameters).items() if name != "seeds"]
    whole = known + "".join(one for one in options if one not in known)
    if (page := folder / "README.md").exists():
        write(page, page.read_text(encoding="utf8").replace(f"\n{known}\n", f"\n{whole}\n"))
    marks = {"shipped": True, "parameters": parameters, "command": whole}
    write_provenance(provenance | marks, folder)


def _parameters(folder: Path) -> dict[str, Any]:
    """Return what a notebook was executed with, but for the profile and for places, which another
    machine has elsewhere; nothing of an execution that failed, or lacked a run.
    """
    given = reference_parameters(folder, OUTCOME)
    result = read_json(folder / OUTCOME) if given else {}
    if result.get("failure") or result.get("missing"):
        return {}
    places = set().union(*(named(system).settings.places() for system in SYSTEMS))
    overrides = {
        name: value for name, value in given.get("overrides", {}).items() if name not in places
    }
    apart = ("profile", "output", "overrides")
    parameters = {name: value for name, value in given.items() if name not in apart}
    return parameters | ({"overrides": overrides} if overrides else {})


if __name__ == "__main__":
    if sys.argv[1:2] == ["--stored"]:
        ship_stored(Path(sys.argv[2]))
    else:
        ship([Path(name) for name in sys.argv[1:]])
