"""``runs``: the stored runs, their list, their deletion and their shipment."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

from fedmuscle_lib.core.command_line import App
from fedmuscle_lib.core.files import read_json, write
from fedmuscle_lib.core.notebooks import OUTCOME, PROVENANCE, flat, reference_parameters, runs_of
from fedmuscle_lib.core.ownership import reach
from fedmuscle_lib.core.registry import check_known
from fedmuscle_lib.creamfl import algorithms as creamfl
from fedmuscle_lib.fedloge import methods
from fedmuscle_lib.fedmuscle import algorithms
from fedmuscle_lib.report.provenance import option, write_provenance
from fedmuscle_lib.reproduce import index
from fedmuscle_lib.runs import SYSTEMS, Entry, Store, default_store, named
from fedmuscle_lib.runs.archive import ARCHIVE
from fedmuscle_lib.runs.store import Description

_OF_ALL = ("seed", "profile")  # settings with a column of their own, whatever the system

app = App(help="List the stored runs, delete some, ship those behind a reference.")


@app.callback(invoke_without_command=True)
def command(context: typer.Context) -> None:
    """List the stored runs; `delete` and `ship` do something with them."""
    if context.invoked_subcommand is not None:
        return
    store = default_store()
    entries = list(store.entries())
    if entries:
        print(listing(entries).to_string(index=False))
    print(
        f"{len(entries)} runs, {_size(sum(entry.nbytes for entry in entries))}; computed ones are"
        f" kept in {store.root}"
    )


def listing(entries: Sequence[Entry]) -> pd.DataFrame:
    """A row a run: its address, what it is, whether it is complete and whose, when it was finished,
    and its size.

    What a run is are the settings by which its system tells runs apart; a run of another system has
    nothing in their columns.
    """
    told = [(entry, entry.description()) for entry in entries]
    systems = {said.system for _, said in told}
    own = [
        name for system in SYSTEMS if system in systems for name in named(system).settings.labels
    ]
    columns = dict.fromkeys([*(["system"] if len(systems) > 1 else []), *own, *_OF_ALL])
    return pd.DataFrame([_row(entry, said, columns) for entry, said in told])


def _row(entry: Entry, said: Description, columns: Iterable[str]) -> dict[str, Any]:
    known = {"system": said.system} | said.settings
    return {
        "address": entry.address,
        **{name: known.get(name, "" if said.settings else "?") for name in columns},
        "other settings": changed(said.settings, said.system),
        "state": "complete" if entry.done else "interrupted",
        "origin": "shipped" if entry.shipped else "computed",
        "finished": said.finished or "",
        "size": _size(entry.nbytes),
    }


def changed(settings: dict[str, Any], system: str) -> str:
    """The settings of a run that have no column and are not its profile's, such as "rounds=4
    reply=dense".
    """
    given = {name: settings[name] for name in ("profile", "setup") if name in settings}
    try:
        kind = named(system).settings
        usual = kind(**given).model_dump(mode="json")
    except ValueError:  # a system, a profile or a setup that there is no more
        return ""
    shown = {*kind.labels, *_OF_ALL}
    own = {
        name: value
        for name, value in settings.items()
        if name not in shown and value != usual.get(name)
    }
    return " ".join(
        f"{name}={value if isinstance(value, str) else json.dumps(value)}"
        for name, value in own.items()
    )


@app.command()
def delete(
    addresses: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ADDRESS]...", help="Addresses, or how they begin."),
    ] = None,
    interrupted: Annotated[
        bool, typer.Option("--interrupted", help="Those that were not completed.")
    ] = False,
    algorithm: Annotated[str | None, typer.Option(help="Those of this algorithm.")] = None,
    system: Annotated[
        str | None, typer.Option(metavar="|".join(SYSTEMS), help="Those of this system.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Delete the computed runs that fit everything that is given.

    Shipped runs and files of others are never deleted.
    """
    if not (addresses or interrupted or algorithm or system):
        raise ValueError("runs delete: name addresses, --interrupted, --algorithm or --system")
    if system is not None:
        check_known("unknown system", system, SYSTEMS)
    store = default_store()
    if algorithm is not None:
        check_known("unknown algorithm", algorithm, _algorithms(store))
    chosen = _chosen(store, addresses or [], interrupted, algorithm, system)
    if not chosen:
        print("no such run")
        return
    print(listing(chosen).to_string(index=False))
    if yes or typer.confirm(f"Delete {len(chosen)} runs?"):
        for entry in chosen:
            reach(entry.path, store.root)  # before the first is deleted
        left = [path for entry in chosen for path in entry.delete()]
        print(
            f"{len(chosen)} runs deleted"
            + (f"; left alone: {', '.join(map(str, left))}" if left else "")
        )


def _algorithms(store: Store) -> set[str]:
    """Names of the algorithms of all systems, and of those that stored runs name, which there may
    be no more.
    """
    stored = (entry.description().settings.get("algorithm") for entry in store.entries())
    return {
        *algorithms.names(),
        *methods.names(),
        *creamfl.names(),
        *(name for name in stored if isinstance(name, str)),
    }


def _chosen(
    store: Store,
    addresses: Sequence[str],
    interrupted: bool,
    algorithm: str | None,
    system: str | None,
) -> list[Entry]:
    computed = [entry for entry in store.entries() if not entry.shipped]
    if unknown := [
        address
        for address in addresses
        if not address or not any(entry.address.startswith(address) for entry in computed)
    ]:
        raise ValueError(f"no computed run {unknown[0]!r} in {store.root}")
    asked = [
        entry for entry in computed if not addresses or entry.address.startswith(tuple(addresses))
    ]
    told = [(entry, entry.description()) for entry in asked if not (interrupted and entry.done)]
    return [
        entry
        for entry, said in told
        if algorithm in (None, said.settings.get("algorithm")) and system in (None, said.system)
    ]


@app.command()
def ship(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="NOTEBOOK_FOLDER...", help="Such as figures/mini/table7."),
    ],
) -> None:
    """Copy the runs behind a reference's folders into the archive beside them, and say so in their
    provenance.

    Runs that no folder of the profile names any more are removed from it.

    `make reference` does this.
    """
    store = default_store()
    for folder in folders:
        if not folder.is_dir():
            raise FileNotFoundError(f"{folder}: no such folder")
        if not any((folder / name).exists() for name in (OUTCOME, PROVENANCE, "table.csv")):
            raise ValueError(f"{folder}: no notebook's results lie there")
    for profile in dict.fromkeys(folder.parent for folder in folders):
        named = {
            address
            for path in profile.glob(f"*/{PROVENANCE}")
            for address in _addresses(path.parent)
        }
        asked = {folder: _addresses(folder) for folder in folders if folder.parent == profile}
        for address in store.ship(set().union(*asked.values()), profile / ARCHIVE, named):
            print(f"{profile / ARCHIVE}: {address} is removed, since no reference names it")
        for folder, addresses in asked.items():
            _mark(folder)
            print(f"{folder}: {len(addresses)} runs shipped")
        index(profile)  # which now calls them shipped


def _mark(folder: Path) -> None:
    """Say in a provenance, if there is one, that its runs are shipped and what the notebook was
    given. Its page gets the command.
    """
    if not (path := folder / PROVENANCE).exists():
        return
    provenance = read_json(path)
    parameters = _parameters(folder) or provenance.get("parameters", {})
    known = provenance.get("command", "")
    marks = {"shipped": True, "parameters": parameters, "command": _whole(known, parameters)}
    if (page := folder / "README.md").exists():
        write(
            page, page.read_text(encoding="utf8").replace(f"\n{known}\n", f"\n{marks['command']}\n")
        )
    write_provenance(provenance | marks, folder)


def _parameters(folder: Path) -> dict[str, Any]:
    """Return what a notebook was executed with, but for the profile and for places, which another
    machine has elsewhere.

    An execution that failed, or lacked a run, did not make the folder's results: then it is
    nothing.
    """
    given = reference_parameters(folder, OUTCOME)
    if (result := folder / OUTCOME).exists() and any(
        read_json(result).get(name) for name in ("failure", "missing")
    ):
        return {}
    parameters = {name: value for name, value in given.items() if name not in ("profile", "output")}
    if overrides := parameters.pop("overrides", None):
        places = set().union(*(named(system).settings.places() for system in SYSTEMS))
        parameters["overrides"] = {
            name: value for name, value in overrides.items() if name not in places
        }
    return parameters


def _whole(command: str, parameters: dict[str, Any]) -> str:
    """The command of a provenance, which knows settings of runs alone, with all that the notebook
    was given.
    """
    options = [option(name, value) for name, value in flat(parameters).items() if name != "seeds"]
    return command + "".join(one for one in options if one not in command)


def _addresses(folder: Path) -> list[str]:
    return list(dict.fromkeys(run["address"] for run in runs_of(folder)))


def _size(nbytes: int) -> str:
    return f"{nbytes / 1e6:.1f} MB" if nbytes >= 1e6 else f"{nbytes / 1e3:.0f} kB"
