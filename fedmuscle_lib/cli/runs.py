"""``runs``: the stored runs, their list, their deletion and their shipment."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

from fedmuscle_lib.core.files import read_json, write
from fedmuscle_lib.core.notebooks import OUTCOME, PROVENANCE, flat, reference_parameters, runs_of
from fedmuscle_lib.report.provenance import option, write_provenance
from fedmuscle_lib.runs import SYSTEMS, Entry, default_store, named
from fedmuscle_lib.runs.archive import ARCHIVE

_OF_ALL = ("seed", "profile")  # settings with a column of their own, whatever the system

app = typer.Typer(help="List the stored runs, delete some, ship those behind a reference.")


@app.callback(invoke_without_command=True)
def command(context: typer.Context) -> None:
    """List the stored runs; `delete` and `ship` do something with them."""
    if context.invoked_subcommand is not None:
        return
    store = default_store()
    entries = list(store.entries())
    if entries:
        print(listing(entries).to_string(index=False))
    print(f"{len(entries)} runs; computed ones are kept in {store.root}")


def listing(entries: Sequence[Entry]) -> pd.DataFrame:
    """A row a run: its address, the settings by which its system tells runs apart and others that
    are not usual, whether it is complete and whose, and when it was finished.
    """
    return pd.DataFrame(map(_row, entries)).fillna("")


def _row(entry: Entry) -> dict[str, Any]:
    facts = entry.facts()
    system, settings = facts["system"], facts["settings"]
    labels = named(system).settings.labels if system in SYSTEMS else ()
    return {
        "address": entry.address,
        "system": system,
        **{name: settings.get(name, "?") for name in (*labels, *_OF_ALL)},
        "other settings": changed(settings, system),
        "state": "complete" if entry.done else "interrupted",
        "origin": "shipped" if entry.shipped else "computed",
        "finished": facts.get("finished", ""),
    }


def changed(settings: dict[str, Any], system: str) -> str:
    """The settings of a run that have no column and are not its profile's, such as "rounds=4
    reply=dense".
    """
    given = {name: settings[name] for name in ("profile", "setup") if name in settings}
    try:
        kind = named(system).settings
        usual = kind(**given).recorded()
    except ValueError:  # a system, a profile or a setup that there is no more
        return ""
    shown = {*kind.labels, *_OF_ALL}
    own = {name: value for name, value in settings.items() if value != usual.get(name)}
    return " ".join(f"{name}={value}" for name, value in own.items() if name not in shown)


@app.command()
def delete(
    addresses: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ADDRESS]...", help="Addresses, or how they begin."),
    ] = None,
    interrupted: Annotated[
        bool, typer.Option("--interrupted", help="Those that were not completed.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Delete the computed runs with these addresses, or the interrupted ones.

    Shipped runs and files of others are never deleted.
    """
    if not (addresses or interrupted):
        raise ValueError("runs delete: name addresses, or --interrupted")
    store, begins = default_store(), tuple(addresses or [""])
    chosen = [
        entry
        for entry in store.entries()
        if entry.address.startswith(begins) and not (entry.shipped or interrupted and entry.done)
    ]
    if not chosen:
        raise ValueError(f"{store.root}: no such computed run")
    print(listing(chosen).to_string(index=False))
    if yes or typer.confirm(f"Delete {len(chosen)} runs?"):
        for entry in chosen:
            entry.delete()
        print(f"{len(chosen)} runs deleted")


@app.command()
def ship(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="NOTEBOOK_FOLDER...", help="Such as figures/mini/table7."),
    ],
) -> None:
    """Copy the runs behind a reference's folders into the archive beside them, and say so in their
    provenance. `make reference` does this.

    Runs that no folder of the profile names any more are removed from it.
    """
    if missing := [folder for folder in folders if not folder.is_dir()]:
        raise FileNotFoundError(f"{missing[0]}: no such folder of results")
    for profile in dict.fromkeys(folder.parent for folder in folders):
        runs = {path.parent: _addresses(path.parent) for path in profile.glob(f"*/{PROVENANCE}")}
        asked = {folder: own for folder, own in runs.items() if folder in folders}
        archive = profile / ARCHIVE
        for address in default_store().ship(
            set().union(*asked.values()), archive, set().union(*runs.values())
        ):
            print(f"{archive}: {address} is removed, since no reference names it")
        for folder, addresses in asked.items():
            _mark(folder)
            print(f"{folder}: {len(addresses)} runs shipped")


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
