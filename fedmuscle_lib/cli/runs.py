"""``runs``: the list of the stored runs."""

from __future__ import annotations

from typing import Any

from fedmuscle_lib.runs import default_store, named


def command() -> None:
    """List the stored runs: address, whether complete and whose, when finished, and settings."""
    store = default_store()
    entries = list(store.entries())
    for entry in entries:
        facts = entry.facts()
        state = "complete" if entry.done else "interrupted"
        origin = "shipped" if entry.shipped else "computed"
        settings = described(facts["settings"], facts["system"])
        print(entry.address, state, origin, facts.get("finished", "not finished"), settings)
    print(f"{len(entries)} runs; computed ones are kept in {store.root}/<address>")


def described(settings: dict[str, Any], system: str) -> str:
    """The settings by which a system tells its runs apart, and others that are not usual, such as
    "local voc setup1 mini seed=1 rounds=4".
    """
    given = {name: settings[name] for name in ("profile", "setup") if name in settings}
    try:
        kind = named(system).settings
        usual = kind(**given).recorded()
    except ValueError:  # a system, a profile or a setup that there is no more
        return ""
    labels = [name for name in (*kind.labels, "profile") if name in settings]
    others = [name for name in settings if settings[name] != usual.get(name)]
    words = [str(settings[name]) for name in labels]
    return " ".join(words + [f"{name}={settings[name]}" for name in others if name not in labels])
