"""Command lines of both programs: every command and option there is, with values of any kind.
Nothing trains and nothing is fetched.

A command ends with exit code 0, or with 2 and a short last line that says why; or it comes to where
something would be computed. Nothing ends in 1, since nothing that was typed may fail only later.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

import typer
from hostile.kind import Case, Kind
from hostile.settings import TEXTS, value

import data_prep.__main__
import fedmuscle_lib.__main__
from fedmuscle_lib.cli import app
from fedmuscle_lib.cli.bench import BENCHES

# Options that each line of a command has, so that nothing of the repository is written or read for
# long.
_ALWAYS = {
    "reproduce": ["table7", "--output", "out"],
    "tune": ["--figures", "out"],
    "verify": ["--sample", "1", "--figures", "out"],
    "notebook": ["--folder", "out"],
    "bench": ["loss"],
}
_DEEP = (
    "[" * 100_000,
    '{"a":' * 5000,
    "[" * 400 + "]" * 400,
    '{"a":1,"a":2}',
    "9" * 5000,
    "-" + "9" * 30,
    "1e400",
    "0,0",
    "-1",
    "1,2,3",
    "NaN",
)
_PLACES = (
    "taken",
    "taken/below",
    "/dev/null/x",
    "/proc/x",
    "nowhere",
    "out",
    "",
    "\0",
    "a" * 5000,
    ".",
)
_DEVICES = (
    "meta",
    "cuda",
    "cuda:99",
    "cpu:7",
    "mps",
    "hpu",
    "auto",
    "cpu",
    "nonsense",
    "-1",
    "mkldnn",
    "privateuseone",
    "9" * 30,
)
_REFUSED = ("meta", "cpu:7", "hpu", "nonsense", "mkldnn", "privateuseone")
_WITH_DEVICES = (
    "run --device {}", "fedloge --gpu {}", "realign taken --device {}", "reproduce table7 --output out -p device={}",
    "tune --figures out -p device={}", "bench loss -p device={}",
)  # fmt: skip
_NAMES = (
    "rounds",
    "users",
    "data_dir",
    "device",
    "overrides",
    "backbones",
    "tau",
    "seeds",
    "seed",
    "threads",
    "own",
    "nothing",
    "",
)
# Data sets and what costs seconds: these are read up to their options alone.
_DATA = ("cifar10", "voc", "yahoo", "coco")


class Reached(BaseException):
    """Here something would be computed."""


def _reached(*_: Any, **__: Any) -> Any:
    raise Reached


def _commands() -> dict[str, list[str]]:
    """The options of each command, by its words."""
    found: dict[str, list[str]] = {}
    for group, program in (
        (typer.main.get_command(app), "fedmuscle_lib"),
        (typer.main.get_command(data_prep.__main__.app), "data_prep"),
    ):
        waiting: list[tuple[str, Any]] = [(program, group)]
        while waiting:
            words, command = waiting.pop()
            waiting += [
                (f"{words} {name}", below)
                for name, below in getattr(command, "commands", {}).items()
            ]
            if program == "fedmuscle_lib" or words.split()[-1] in _DATA:
                found[words] = [
                    option
                    for parameter in command.params
                    for option in parameter.opts
                    if option.startswith("-")
                ]
    return found


_COMMANDS = _commands()


def _text(draws: random.Random, option: str) -> str:
    if option.endswith(
        ("dir", "path", "folder", "figures", "output", "models", "logs", "archives")
    ):
        return draws.choice(_PLACES)
    if option == "--device":
        return draws.choice(_DEVICES)
    if option in ("-p", "--parameter"):
        name = draws.choice(_NAMES)
        return draws.choice((f"{name}={_text(draws, '--' + name.replace('_', '-'))}", name))
    choice = draws.random()
    if choice < 0.3:
        return draws.choice(_DEEP)
    return json.dumps(value(draws)) if choice < 0.6 else draws.choice(TEXTS)


def _case(draws: random.Random) -> Case:
    if draws.random() < 0.05:
        device = draws.choice(_DEVICES)
        line = [part.format(device) for part in draws.choice(_WITH_DEVICES).split()]
        return Case(
            json.dumps(["fedmuscle_lib", line]).encode(),
            f"the device {device}" if device in _REFUSED else "",
        )
    words = draws.choice([*_COMMANDS])
    program, *line = words.split()
    line += _ALWAYS.get(line[-1] if line else "", [])
    for _ in range(draws.choice((0, 1, 1, 1, 2, 3))):
        option = draws.choice(_COMMANDS[words] or ["--nothing"])
        text = _text(draws, option)
        line += draws.choice(
            ([option, text], [option, text], [option, text], [option], [text], [f"{option}={text}"])
        )
    return Case(json.dumps([program, line]).encode())


def _prepare(folder: Path) -> None:
    """Import what a command does when it is there: on a busy machine this takes longer than a case
    may.
    """
    for name in (
        "papermill",
        "nbconvert",
        "fedmuscle_lib.fedmuscle.system",
        "fedmuscle_lib.fedloge.system",
    ):
        import_module(name)


@contextlib.contextmanager
def _harmless(folder: Path) -> Iterator[None]:
    """Nothing is computed, fetched or asked, and what is written goes below the folder."""
    here = folder / "here"
    (here / "out").mkdir(parents=True, exist_ok=True)
    (here / "taken").write_text("")
    environment = {"FEDMUSCLE_RUNS": str(folder / "runs"), "FEDMUSCLE_SHIPPED": "0"}
    computing = (
        "fedmuscle_lib.runs.compute.train", "fedmuscle_lib.runs.workers._connected", "fedmuscle_lib.runs.workers._compute_here",
        "fedmuscle_lib.reproduce.grid.Children", "data_prep.__main__.prepare", "typer.confirm",
    )  # fmt: skip
    with contextlib.ExitStack() as patches:
        for place in computing:
            patches.enter_context(patch(place, _reached))
        patches.enter_context(
            patch.dict(BENCHES, {name: (kind, _reached) for name, (kind, _) in BENCHES.items()})
        )
        patches.enter_context(patch.dict(os.environ, environment))
        patches.enter_context(contextlib.chdir(here))
        yield


def _read(folder: Path) -> None:
    program, line = json.loads((folder / KIND.file).read_bytes())
    main = {"fedmuscle_lib": fedmuscle_lib.__main__.main, "data_prep": data_prep.__main__.main}[
        program
    ]
    said = io.StringIO()
    try:
        with (
            _harmless(folder),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(said),
        ):
            code = main(line)
    except Reached:
        return
    last = (said.getvalue().splitlines() or [""])[-1]
    if code == 2 and last.startswith("error: "):
        raise Refused(last)
    assert code == 0, f"exit code {code}: {last[:300]}"


class Refused(Exception):
    """The last line."""


KIND = Kind(
    file="line.json", prepare=_prepare, case=_case, read=_read, refusals=(Refused,), named="error: "
)
