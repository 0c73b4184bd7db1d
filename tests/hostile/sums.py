"""SHA256SUMS beside archives: a checksum counts however its file is spelt, and one that is damaged
is never none.
"""

from __future__ import annotations

import hashlib
import random
from pathlib import Path
from typing import Any

from hostile.kind import Case, Kind, scrambled

from data_prep.io.build import Place, Run
from data_prep.io.entry import Archive, Entry, SourceError
from data_prep.io.fetch import SUMS, Source

CONTENT = b"an archive"
RIGHT, WRONG = hashlib.sha256(CONTENT).hexdigest(), "0" * 64
ARCHIVE = Archive("a.tar", "https://example.org/a.tar", None)
ENTRY = Entry(
    name="toy", title="Toy: nothing", home="nowhere", terms="none", archives=(ARCHIVE,), counts={}
)


def _case(draws: random.Random) -> Case:
    spelt = draws.choice(("a.tar", "./a.tar", "*a.tar", "*./a.tar", ".//a.tar", "././a.tar"))
    space, end, choice = (
        draws.choice(("  ", " ", "\t")),
        draws.choice(("\n", "\r\n", "")),
        draws.random(),
    )
    others = "".join(f"{WRONG}  b{n}.tar\n" for n in range(draws.randrange(3)))
    if choice < 0.2:
        return Case(f"{others}{draws.choice((RIGHT, RIGHT.upper()))}{space}{spelt}{end}".encode())
    if choice < 0.25:
        return Case(draws.choice(("pipe", "device", "folder")), "no file")
    if choice < 0.5:
        return Case(scrambled(f"{others}{RIGHT}  {spelt}\n".encode(), draws))
    wrong = {
        "another checksum": f"{others}{WRONG}{space}{spelt}{end}",
        "two checksums": f"{RIGHT}  a.tar\n{others}{WRONG}  {spelt}\n",
        "no line": draws.choice(
            (
                "",
                "\n",
                " \n \n",
                "<html></html>",
                f"{RIGHT}",
                f"{RIGHT[:-1]}  a.tar",
                f"SHA256 (a.tar) = {RIGHT}",
            )
        ),
    }
    why = draws.choice([*wrong])
    return Case(wrong[why].encode(), why)


def archived(folder: Path, source: Source) -> tuple[Path, list[str]]:
    """Obtain and check the archive as the command of a data set does; also what it says."""
    said: list[str] = []
    options: dict[str, Any] = {"seed": 0}
    path = Run(ENTRY, options, source, (Place("set"),), folder, said.append).archive(ARCHIVE)
    return path, said


def _read(folder: Path) -> None:
    _, said = archived(folder, Source(folder / "store", None, folder))
    named = (folder / SUMS).read_bytes().count(b"a.tar") and RIGHT.encode() in (
        folder / SUMS
    ).read_bytes().lower()
    assert named or any("a.tar: no line" in line for line in said), (
        "an archive passes unchecked without a word"
    )


KIND = Kind(
    file=SUMS,
    prepare=lambda folder: [(folder / ARCHIVE.name).write_bytes(CONTENT), None][1],
    case=_case,
    read=_read,
    refusals=(SourceError,),
)
