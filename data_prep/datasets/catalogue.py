"""Facts about the data sets, from ``catalogue.toml``."""

from __future__ import annotations

import tomllib
from pathlib import Path

from data_prep.io.entry import Archive, Entry, Option

FACTS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf8"))


_KINDS = {"int": int, "float": float, "str": str, "bool": bool}
OPTIONS = {
    name: Option(**{"name": name} | facts | {"kind": _KINDS[facts["kind"]]})
    for name, facts in FACTS["options"].items()
}


def described(name: str) -> Entry:
    """Return the data set's entry."""
    facts = FACTS[name]
    archives = tuple(Archive(**archive) for archive in facts["archives"])
    return Entry(
        name=name,
        **facts
        | {
            "archives": archives,
            "takes": tuple(OPTIONS[option] for option in facts.get("takes", ())),
        },
    )
