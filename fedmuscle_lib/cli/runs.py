"""``runs``: the stored runs, their list and their deletion."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import pandas as pd
import typer

from fedmuscle_lib.runs import SYSTEMS, Entry, default_store, named

_OF_ALL = ("seed", "profile")  # settings with a column of their own, whatever the system

app = typer.Typer(help="List the stored runs, or delete some.")


@app.callback(invoke_without_command=True)
def command(context: typer.Context) -> None:
    """List the stored runs; `delete` removes some."""
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
