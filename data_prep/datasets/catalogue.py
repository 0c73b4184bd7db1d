"""Facts about the data sets, from ``catalogue.toml``."""

from __future__ import annotations

import tomllib
from pathlib import Path

from data_prep.io.entry import Archive, Entry, Option

FACTS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf8"))


def described(name: str, takes: tuple[Option, ...] = ()) -> Entry:
    """Return the data set's entry; ``takes`` are the options of its command."""
    facts = FACTS[name]
    return Entry(name=name, takes=takes, **facts | {"archives": tuple(Archive(**archive) for archive in facts["archives"])})
