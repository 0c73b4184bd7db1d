"""Tries malformed inputs of every kind: each is read, or refused in a line that names the file.
``make fuzz MINUTES=30`` runs it.

Nothing crashes, hangs, takes much memory or changes numpy. A case is drawn from the seed, its kind
and its number alone; the line of a bad one says how to try it again.
"""

from __future__ import annotations

import argparse
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from hostile.kind import KINDS

TESTS = Path(__file__).parents[1]
PATIENCE = 60.0  # seconds without a word, after which a child hangs
START = 600.0  # seconds until the first word, while it imports


@dataclass
class Findings:
    """What came of the cases: counts by kind and outcome ("refused", "accepted", "bad"), and a line
    for each bad one.
    """

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    bad: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        rows = [f"{'':12}{'tried':>10}{'refused':>10}{'accepted':>10}{'bad':>10}"]
        for name in sorted({name for name, _ in self.counts}):
            numbers = [self.counts[name, outcome] for outcome in ("refused", "accepted", "bad")]
            rows.append(f"{name:12}" + "".join(f"{n:10,}" for n in (sum(numbers), *numbers)))
        return "\n".join([*rows, *self.bad])


def fuzz(
    kinds: tuple[str, ...],
    seed: int,
    *,
    cases: int = 1 << 60,
    seconds: float = float("inf"),
    fault: str = "",
    first_bad: bool = False,
) -> Findings:
    """Try cases until their number or the time is up.

    Args:
        fault: of ``hostile.faults``, which is put back into the children.
        first_bad: stop at the first bad case.
    """
    found, number, end = Findings(), 0, time.monotonic() + seconds
    while number < cases and time.monotonic() < end and not (first_bad and found.bad):
        command = [
            sys.executable,
            "-m",
            "hostile.child",
            ",".join(kinds),
            str(seed),
            str(number),
            str(cases - number),
            *filter(None, [fault]),
        ]
        path = os.pathsep.join([str(TESTS), str(TESTS.parent), os.environ.get("PYTHONPATH", "")])
        environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
        with (
            tempfile.TemporaryFile() as said,
            subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=said, env=environment, cwd=TESTS.parent
            ) as child,
        ):
            number = _follow(child, said, found, seed, number, end, fault, first_bad)
    return found


def _follow(
    child: subprocess.Popen,
    said: IO[bytes],
    found: Findings,
    seed: int,
    number: int,
    end: float,
    fault: str,
    first_bad: bool,
) -> int:
    """Take note of what a child prints until it ends, or is ended; return the number of the next
    case.
    """
    assert child.stdout
    started, name, rest, patience = False, "", b"", START
    waiting = selectors.DefaultSelector()
    waiting.register(child.stdout, selectors.EVENT_READ)
    try:
        while True:
            piece = os.read(child.stdout.fileno(), 1 << 16) if waiting.select(patience) else None
            patience = PATIENCE
            *lines, rest = (rest + (piece or b"")).split(b"\n")
            for line in lines:
                if not started:
                    name, started = line.decode().partition(" ")[2], True
                    continue
                outcome = line.decode(errors="replace")
                bad = outcome not in ("refused", "accepted")
                found.counts[name, "bad" if bad else outcome] += 1
                if bad:
                    found.bad.append(_bad(name, seed, number, outcome, fault))
                number, started = number + 1, False
            if piece:
                if time.monotonic() > end or (first_bad and found.bad):
                    return number
                continue
            if piece is None:
                why = "no word for too long"
            elif child.wait() == 0:
                return number
            else:
                why = (
                    f"the process ended with {child.returncode}:"
                    f" {' '.join(_last_words(said).decode(errors='replace').split())[-300:]}"
                )
            if not started:
                raise RuntimeError(f"hostile.child: {why}")
            found.counts[name, "bad"] += 1
            found.bad.append(_bad(name, seed, number, why, fault))
            return number + 1
    finally:
        child.kill()


def _last_words(said: IO[bytes]) -> bytes:
    said.seek(0)
    return said.read()


def _bad(name: str, seed: int, number: int, why: str, fault: str) -> str:
    return (
        f"BAD {name}: {why} (PYTHONPATH=tests python -m hostile.child {name} {seed} {number} 1"
        f" {fault})"
    )


def main() -> None:
    options = argparse.ArgumentParser(prog="hostile", description=__doc__)
    options.add_argument("--minutes", type=float, default=1)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--kinds", default=",".join(KINDS))
    given = options.parse_args()
    found = fuzz(tuple(given.kinds.split(",")), given.seed, seconds=60 * given.minutes)
    print(found)
    sys.exit(bool(found.bad))


if __name__ == "__main__":
    main()
