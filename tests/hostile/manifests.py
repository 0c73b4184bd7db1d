"""Manifests of data folders: what says that a folder is unfinished is believed, and what is none is
never taken for a whole one.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

from hostile.kind import Case, Kind, scrambled

from data_prep.io.build import Place, Run, prepare
from data_prep.io.entry import Entry, SourceError
from data_prep.io.fetch import Source
from fedmuscle_lib.core.errors import DataError
from fedmuscle_lib.core.files import put
from fedmuscle_lib.core.ownership import NotOurs
from fedmuscle_lib.data.layout import refuse_unfinished

PLACE, CONTENT = "set", b"content"
_ENTRY = Entry(
    name="toy", title="Toy: nothing", home="nowhere", terms="none", archives=(), counts={}
)
_MANIFEST = {
    "dataset": "toy",
    "whole": True,
    "official": True,
    "archives": [],
    "counts": {},
    "sizes": [],
    "files": 1,
}
_MANIFEST |= {"request": {"from": "a folder of archives"}, "versions": {"data_prep": 3}}


def _case(draws: random.Random) -> Case:
    choice = draws.random()
    if choice < 0.05:
        return Case(json.dumps(_MANIFEST).encode())
    if choice < 0.1:
        return Case(draws.choice(("pipe", "device", "folder")), "no file")
    if choice < 0.4:
        return Case(scrambled(json.dumps(_MANIFEST, indent=1).encode(), draws))
    if choice < 0.5:
        content = json.dumps(
            _MANIFEST | {"whole": False},
            separators=draws.choice(((",", ":"), (", ", ": "), (" ,", " :\t"))),
        )
        return Case(content.encode(draws.choice(("utf-8", "utf-16"))), "unfinished")
    if choice < 0.6:
        return Case(
            draws.choice(
                (
                    b"",
                    b"{",
                    b"[]",
                    b"7",
                    b"null",
                    b"[" * 99_999,
                    b'{"a":' * 99_999,
                    b"\xff\xff",
                    b"\0",
                )
            ),
            "no object",
        )
    odd = (
        None,
        7,
        -1,
        1e300,
        "",
        "toy",
        [],
        {},
        [7],
        [{}],
        [{"name": 7, "bytes": 1}],
        [{"name": "../a", "bytes": 1}],
        {"data_prep": []},
    )
    return Case(
        json.dumps(
            _MANIFEST
            | {draws.choice([*_MANIFEST]): draws.choice(odd) for _ in range(draws.randint(1, 3))}
        ).encode()
    )


def _write(run: Run) -> None:
    put(run.folder / "file", CONTENT)


def _prepare(folder: Path) -> None:
    (folder / "archives").mkdir()


def _read(folder: Path) -> None:
    place = folder / PLACE
    put(place / "file", CONTENT)
    try:
        refuse_unfinished(place)
    finally:
        source = Source(folder, None, folder / "archives")
        try:
            prepare(Run(_ENTRY, {}, source, (Place(PLACE),), folder, say=lambda line: None), _write)
        except SourceError as error:
            assert str(place) in str(error) and str(error).isprintable()
        else:
            refuse_unfinished(place)


KIND = Kind(
    file=f"{PLACE}/manifest.json",
    prepare=_prepare,
    case=_case,
    read=_read,
    refusals=(DataError, NotOurs),
)
