"""Settings of every system: values of JSON of any type, size and depth, for one to three fields.

They are refused in a ``ValueError``, or they are a run's settings: they come back from JSON as they
were, and have an address.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hostile.kind import Case, Kind

from fedmuscle_lib.core.exit_codes import _line
from fedmuscle_lib.creamfl.settings import Settings as CreamFLSettings
from fedmuscle_lib.fedloge.settings import Settings as FedLoGeSettings
from fedmuscle_lib.fedmuscle.settings import Settings
from fedmuscle_lib.runs.settings import RunSettings, parse
from fedmuscle_lib.runs.system import system_of

SYSTEMS: dict[str, type[RunSettings]] = {
    "fedmuscle": Settings,
    "fedloge": FedLoGeSettings,
    "creamfl": CreamFLSettings,
}
NUMBERS = (
    0,
    1,
    2,
    3,
    32,
    64,
    -1,
    2**31,
    2**53,
    2**53 + 1,
    10**30,
    10**3000,
    0.5,
    0.2,
    1e-320,
    1e308,
    -0.0,
)
NOT_FINITE = (float("nan"), float("inf"), -float("inf"))
TEXTS = (
    "", " ", "0", "1", "mini", "small", "setup1", "setup2", "local", "fedmuscle", "simclr", "voc", "cpu", "auto", "tuned", "last", "none",
    "nowhere", "../..", "/dev/null", "\0", "\n", "\x1b[31m", "\ud800", "é", "٣", "x" * 5000, "default", "MLC", "SS-TC", "1-2", "ViT-Tiny",
    "ViT-Tiy", "vit-tiny", "simclr.tau", "cofed.epochs", "fedprox.mu", "__class__", "nan",
)  # fmt: skip


def value(draws: random.Random, depth: int = 0) -> Any:
    """A JSON value."""
    match draws.randrange(10 if depth < 3 else 6):
        case 0 | 1 | 2:
            return draws.choice(NUMBERS)
        case 3 | 4:
            return draws.choice(TEXTS)
        case 5:
            return draws.choice((None, True, False, *NOT_FINITE))
        case 6:
            return [value(draws, depth + 1) for _ in range(draws.choice((0, 1, 2, 6)))]
        case 7 | 8:
            return {
                draws.choice(TEXTS): value(draws, depth + 1)
                for _ in range(draws.choice((0, 1, 1, 2)))
            }
        case _:
            deep: Any = draws.choice(NUMBERS)
            for _ in range(draws.choice((2, 20, 300))):
                deep = [deep] if draws.random() < 0.5 else {"default": deep}
            return deep


def _case(draws: random.Random) -> Case:
    system = draws.choice([*SYSTEMS])
    fields = [*SYSTEMS[system].model_fields, "nothing", ""]
    given = {draws.choice(fields): value(draws) for _ in range(draws.choice((0, 1, 1, 2, 3)))}
    seed = given.get("seed")
    return Case(
        json.dumps([system, given]).encode(),
        "a seed above 2^53" if isinstance(seed, int) and seed > 2**53 else "",
    )


def parts(value: Any) -> Iterator[Any]:
    """The numbers and texts of a value."""
    if isinstance(value, dict):
        yield from value
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            yield from parts(item)
    else:
        yield value


def _read(folder: Path) -> None:
    system, given = json.loads((folder / KIND.file).read_bytes())
    try:
        settings = parse(SYSTEMS[system], given)
    except ValueError as error:
        raise Refused(_line(str(error))) from None
    again = json.loads(json.dumps(settings.model_dump(mode="json"), allow_nan=False))
    assert parse(SYSTEMS[system], again) == settings, "they come back from JSON as others"
    assert settings.threads <= 1024, "more threads than torch can have"
    texts = [part for part in parts(settings.recorded()) if isinstance(part, str)]
    assert all(text.isprintable() for text in texts), "a text that can't be printed"
    assert json.dumps(system_of(settings).key(settings)) and settings.title


class Refused(Exception):
    """What the settings said."""


KIND = Kind(
    file="settings.json",
    prepare=lambda folder: None,
    case=_case,
    read=_read,
    refusals=(Refused,),
    named="",
)
