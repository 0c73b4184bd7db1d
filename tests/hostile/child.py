"""Tries cases one after the other and prints what came of each; the process has limits, and may die
of a case.

``python -m hostile.child KINDS SEED FIRST COUNT [FAULT]``. Prints a line before and a line after
each case: its number, and then "refused", "accepted" or what is bad.
"""

from __future__ import annotations

import random
import resource
import sys
import tempfile
import time
import traceback
from pathlib import Path

from hostile.kind import Kind, kind

MOST_SECONDS = 15.0  # of processor time, for a case
MOST_MEMORY = 700 << 20  # bytes that a case may add
_ROOM = 6 << 30  # of addresses, most of which torch takes without using them


def main(names: str, seed: str, first: str, count: str, fault: str = "") -> None:
    kinds = {name: kind(name) for name in names.split(",")}
    if fault:
        from hostile.faults import FAULTS

        FAULTS[fault].put_back()
    with tempfile.TemporaryDirectory() as scratch:
        folders = {name: Path(scratch) / name for name in kinds}
        for name, one in kinds.items():
            (folders[name] / one.file).parent.mkdir(parents=True)
            one.prepare(folders[name])
        _limit()
        for number in range(int(first), int(first) + int(count)):
            name = list(kinds)[number % len(kinds)]
            print(number, name, flush=True)
            print(
                tried(kinds[name], folders[name], random.Random(f"{seed} {name} {number}")),
                flush=True,
            )


def tried(one: Kind, folder: Path, draws: random.Random) -> str:
    """What came of a case: "refused", "accepted", or what is bad about it."""
    case = one.case(draws)
    path = folder / one.file
    case.write(path)
    state, memory, start = _state(), _memory(), time.process_time()
    try:
        one.read(folder)
        found = (
            f"accepted though it must be refused: {case.refused}" if case.refused else "accepted"
        )
    except one.refusals as error:
        text = str(error)
        found = "refused"
        if (
            (str(folder) if one.named is None else one.named) not in text
            or not text.isprintable()
            or len(text) > 2000
        ):
            found = f"refused in words that name no file, or not in a short line: {text[:300]!r}"
        elif "MemoryError" in text:
            found = f"refused after the memory was full: {text[:300]!r}"
    except BaseException as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        found = (
            f"{type(error).__name__} in {Path(frame.filename).name}, line {frame.lineno}:"
            f" {str(error)[:300]!r}"
        )
    if (seconds := time.process_time() - start) > MOST_SECONDS:
        found = f"{found}, after {seconds:.0f} s"
    if (added := _memory() - memory) > MOST_MEMORY:
        found = f"{found}, with {added >> 20} MB of memory"
    if _state() != state:
        found = f"{found}, and numpy is changed"
    return found


def _memory() -> int:
    """The largest memory that the process had so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def _limit() -> None:
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + _ROOM, taken + _ROOM))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _state() -> object:
    """What hostile files could change of numpy and of Python's codecs."""
    import codecs

    import numpy as np
    from numpy._core import multiarray, numeric

    functions = (numeric._frombuffer, multiarray._reconstruct, multiarray.scalar, codecs.encode)
    own = [
        (
            f.__name__,
            getattr(f, "__defaults__", 0),
            getattr(f, "__kwdefaults__", 0),
            sorted(getattr(f, "__dict__", ())),
        )
        for f in functions
    ]
    return (
        own,
        [repr(np.dtype(name)) for name in ("u1", "f8", "V8", "O")],
        sorted(vars(numeric._frombuffer)),
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
