"""Stored runs: scrambled zips, right checksums of contents that no run gives, and shipped runs, of
which nothing may change.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import random
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pandas as pd
from hostile.kind import Case, Kind, scrambled

from fedmuscle_lib.fedloge.system import SYSTEM
from fedmuscle_lib.runs import Damaged, Record, Store
from fedmuscle_lib.runs.address import Address
from fedmuscle_lib.runs.archive import SUMS, write_archive

HERE = Address("0123456789abcdef", (("FedLT/set", "d1"),), "2.13")
ROWS = {
    "round": [1, 2],
    "value": [50.0, 100 / 3],
    "scope": "global",
    "head": "shared",
    "masked": False,
    "group": "all",
    "measure": "drift",
}


@cache
def whole() -> bytes:
    """A run as it was stored."""
    tables = {
        name: pd.DataFrame({column: ROWS.get(column, 1) for column in columns}, index=[0, 1])
        for name, columns in SYSTEM.tables.items()
    }
    for table in tables.values():
        table["round"] = ROWS["round"]
    tables["metrics"]["value"] = ROWS["value"]
    provenance = {
        "address": str(HERE),
        "system": "fedloge",
        "settings": {"rounds": 2},
        "inputs": dict(HERE.inputs),
        "torch": HERE.torch,
    }
    return Record(tables, provenance | {"finished": "2026-11-22T14:12:07+00:00"}).pack()


def _members(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as file:
        return {name: file.read(name) for name in file.namelist()}


def _packed(members: dict[str, bytes], checked: bool = True) -> bytes:
    """A zip of these files; ``checked`` gives it the checksums that it needs."""
    if checked:
        sums = (
            f"{hashlib.sha256(content).hexdigest()}  {name}\n"
            for name, content in members.items()
            if name != SUMS
        )
        members |= {SUMS: "".join(sums).encode()}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name, content in members.items():
            file.writestr(zipfile.ZipInfo(name), content)
    return buffer.getvalue()


def _case(draws: random.Random) -> Case:
    choice, members = draws.random(), _members(whole())
    if choice < 0.05:
        return Case(whole())
    if choice < 0.1:
        return Case(draws.choice(("pipe", "device", "folder")), "no file")
    if choice < 0.4:
        return Case(scrambled(whole(), draws))
    name = draws.choice([*members])
    if choice < 0.6:
        members[name] = scrambled(members[name], draws)
        if members[name] == _members(whole())[name]:
            return Case(whole())
        return Case(_packed(members, checked=False), "a checksum that is wrong")
    if choice < 0.7:
        members[name] = scrambled(members[name], draws)
        return Case(_packed(members))
    table = members["metrics.csv"]
    wrong = {
        "a word for a value": (
            "metrics.csv",
            table.replace(
                b"50.0", draws.choice((b"abc", b"", b"inf", b"50.0.0", b"\x1b[2J", b"'5'"))
            ),
        ),
        "rounds that are none": (
            "metrics.csv",
            table.replace(b"\n2,", draws.choice((b"\n2.5,", b"\nx,", b"\n,", b"\n9,", b"\n-2,"))),
        ),
        "another column": (
            "metrics.csv",
            table.replace(b"round", draws.choice((b"rounds", b"", b"value"))),
        ),
        "words for bytes": ("costs.csv", members["costs.csv"].replace(b"2,1", b"2,many")),
        "provenance that is none": (
            "provenance.json",
            draws.choice((b"", b"[]", b"7", b"[" * 99_999, b'{"a":' * 9_999, b"\xff")),
        ),
    }
    for key, value in (
        ("address", draws.choice(("another", None, [], "../" + str(HERE)))),
        ("system", draws.choice(("os", "", ["fedloge"], {}, 7))),
        ("settings", draws.choice(([], None, {"rounds": 3}, {}))),
        ("inputs", draws.choice(([], None, "d1", {"FedLT/set": 1}))),
        ("finished", draws.choice((None, 7, []))),
        ("torch", draws.choice((None, 2.13, []))),
    ):
        wrong[f"another {key}"] = (
            "provenance.json",
            json.dumps(json.loads(members["provenance.json"]) | {key: value}).encode(),
        )
    why = draws.choice([*wrong])
    changed, members[changed] = wrong[why][0], wrong[why][1]
    return Case(_packed(members), why)


@contextmanager
def warnings_said() -> Iterator[list[str]]:
    """The warnings of the library inside."""
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("fedmuscle")
    before, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        yield said
    finally:
        logger.removeHandler(handler)
        logger.propagate = before


def _prepare(folder: Path) -> None:
    write_archive(folder / SHIPPED, {str(HERE): whole()})


def _read(folder: Path) -> None:
    path = folder / FILE
    for aside in path.parent.glob("*.damaged*"):
        aside.unlink()
    store, shipped = Store(folder / "runs"), folder / SHIPPED
    content = path.read_bytes() if path.is_file() else b""
    sums = f"{hashlib.sha256(whole()).hexdigest()}  {HERE}.zip\n"
    shipped.write_bytes(_packed({f"{HERE}.zip": content, SUMS: sums.encode()}, checked=False))
    with warnings_said():
        assert Store(folder / "none", (shipped,)).find(HERE) is None or content == whole(), (
            "a shipped run is served that is another"
        )
    with warnings_said() as said:
        found = store.find(HERE)
    if found is None:
        assert said and not path.exists() and list(path.parent.glob("*.damaged")), (
            "a run is lost without a word"
        )
        raise Damaged(said[0])
    if _packed(_members(content)) != _packed(_members(content), checked=False):
        raise AssertionError("a run is served whose checksums are wrong")
    assert store.find(HERE) is not None and list(store.entries())[0].description().finished


FILE, SHIPPED = f"runs/{HERE}/run.zip", "shipped.zip"
KIND = Kind(file=FILE, prepare=_prepare, case=_case, read=_read, refusals=(Damaged,))
