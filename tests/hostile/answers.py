"""Answers of a web server: wrong ranges, lengths and tags, redirections, broken connections.

A download ends, and is right or refused.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
import shutil
from pathlib import Path
from typing import Any
from unittest import mock

from hostile.kind import Case, Kind, scrambled
from hostile.sums import ARCHIVE, archived
from loopback import answering

from data_prep.io import fetch
from data_prep.io.entry import SourceError

CONTENT = random.Random(0).randbytes(200_000)
SUMS = f"{hashlib.sha256(CONTENT).hexdigest()}  {ARCHIVE.name}\n".encode()
_MOST_REQUESTS = 20 * fetch.ATTEMPTS  # of which a redirection may be ten


def _case(draws: random.Random) -> Case:
    """One to four answers, of which the last goes on; a right one among them may come through."""
    return Case(json.dumps([_answer(draws) for _ in range(draws.randint(1, 4))]).encode())


def _answer(draws: random.Random) -> dict[str, Any]:
    right = {
        "status": "",
        "start": None,
        "bytes": draws.choice((0, 1, 70_000, 150_000, 1 << 20, 1 << 20)),
        "length": None,
        "etag": '"one"',
    }
    right |= {"range": None, "more": {}, "scramble": 0}
    wrong: dict[str, Any] = draws.choice(
        (
            {},
            {},
            {"etag": draws.choice(("NUMBER", None, "W/", "\u00ff", '"' * 5000))},
            {
                "status": draws.choice(
                    (
                        "416 no",
                        "206 Partial",
                        "204 None",
                        "200 OK",
                        "503 Busy",
                        "304 Same",
                        "404 No",
                        "999 ?",
                        "100 Go on",
                        "x",
                    )
                )
            },
            {"start": draws.choice((0, 5, 199_999, 300_000))},
            {
                "range": draws.choice(
                    (
                        "bytes 5-9/200000",
                        "bytes */200000",
                        "bytes 0-/x",
                        "x",
                        "bytes 70000-199999/7",
                        "bytes 9-9/" + "9" * 5000,
                    )
                )
            },
            {
                "length": draws.choice(
                    (0, 5, 10**9, 1 << 50, -1, "x", "\u00b2", "9" * 5000, "", "5, 5")
                )
            },
            {
                "status": "302 Found",
                "more": {
                    "Location": draws.choice(
                        ("/a", "/NUMBER", "file:///etc/passwd", "ftp://a/b", "http://[", "", "//")
                    )
                },
            },
            {"more": {"Transfer-Encoding": draws.choice(("chunked", "gzip", "x"))}},
            {"more": {f"X-{n}": "y" for n in range(200)}},
            {"more": {"X": "y" * 99_999}},
            {"scramble": draws.randrange(1, 1 << 30)},
        )
    )
    return right | wrong


def _said(answer: dict[str, Any], number: int, header: bytes) -> bytes:
    if b"/SHA256SUMS" in header.splitlines()[0]:
        return (
            b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(SUMS) + SUMS
        )
    asked = re.search(rb"(?i)^range: bytes=(\d+)-", header, re.MULTILINE)
    start = int(asked[1]) if asked else 0
    status = answer["status"] or ("206 Partial" if asked else "200 OK")
    lines = [f"HTTP/1.1 {status}", "Connection: close"]
    body = CONTENT[start if answer["start"] is None else answer["start"] :]
    length = len(body) if answer["length"] is None else answer["length"]
    lines += (
        [f"Content-Length: {length}"]
        if length != "" and "Transfer-Encoding" not in answer["more"]
        else []
    )
    lines += [f"ETag: {answer['etag']}".replace("NUMBER", f'"{number}"')] if answer["etag"] else []
    told = answer["range"] or (f"bytes {start}-{len(CONTENT) - 1}/{len(CONTENT)}" if asked else "")
    lines += [f"Content-Range: {told}"] if told else []
    lines += [
        f"{name}: {value}".replace("NUMBER", str(number)) for name, value in answer["more"].items()
    ]
    said = "\r\n".join([*lines, "", ""]).encode("latin1") + body[: answer["bytes"]]
    return scrambled(said, random.Random(answer["scramble"])) if answer["scramble"] else said


def _read(folder: Path) -> None:
    answers, store = json.loads((folder / FILE).read_bytes()), folder / "store"
    shutil.rmtree(store, ignore_errors=True)
    with (
        answering(
            lambda number, header: _said(answers[min(number, len(answers) - 1)], number, header)
        ) as (url, asked),
        mock.patch.multiple(fetch, PAUSE=0.0, TIMEOUT=0.5, MOST=1 << 19),
        mock.patch.object(fetch.time, "sleep", lambda seconds: _enough(asked)),
    ):
        try:
            path, _ = archived(folder, fetch.Source(store, url))
            assert path.read_bytes() == CONTENT, "another file is taken for the archive"
        except SourceError as error:
            told = str(error)
            assert told.startswith((f"{url}/", f"{store}/")), (
                f"the address is not named: {told[:200]!r}"
            )
            if kept := re.search(r"([\d,]+) bytes are kept in (\S+);", told):
                assert Path(kept[2]).stat().st_size == int(kept[1].replace(",", "")), (
                    "another part is kept than is said"
                )
            raise SourceError(f"{folder}: {told}") from None


def _enough(asked: list[bytes]) -> None:
    assert len(asked) < _MOST_REQUESTS, "a download goes on and on"


FILE = "answers.json"
KIND = Kind(file=FILE, prepare=lambda folder: None, case=_case, read=_read, refusals=(SourceError,))
