"""Commands of README and documents, as they are typed: every one asks for what there is, and cheap
ones run.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.main import get_command

from data_prep.__main__ import app as preparation
from fedmuscle_lib.__main__ import main
from fedmuscle_lib.cli.commands import app

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/*.md"))]
TESTED = "extending.md"  # by tests/docs/test_extending.py, with what its examples add
PROGRAMS = {"fedmuscle_lib": get_command(app), "data_prep": get_command(preparation)}
CHEAP = ["creamfl --help", "runs --help"]  # the others have tests of what they say


def typed() -> list[tuple[str, str]]:
    """Return page and command for each line of a block of commands."""
    found = []
    for page in PAGES:
        for language, block in re.findall(
            r"^```(\w*)\n(.*?)^```", page.read_text(encoding="utf8"), re.MULTILINE | re.DOTALL
        ):
            lines = (
                block.replace("\\\n", " ").splitlines()
                if language in ("", "bash", "sh") and page.name != TESTED
                else []
            )
            found += [
                (page.name, line)
                for line in lines
                if re.search(r"python3? -m (fedmuscle_lib|data_prep)\s", line)
            ]
    return list(dict.fromkeys(found))


@pytest.mark.parametrize(("page", "line"), typed())
def test_a_command_of_a_page_has_options_that_there_are(page, line):
    program, *arguments = shlex.split(line.partition(" -m ")[2], comments=True)
    group = PROGRAMS[program]
    with group.make_context(program, arguments.copy(), resilient_parsing=True) as context:
        name, command, rest = group.resolve_command(context, arguments)
        assert command is not None
        command.make_parser(context).parse_args(rest)


def test_every_target_of_make_that_a_page_names_is_one():
    targets = set(
        re.findall(
            r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(encoding="utf8"), re.MULTILINE
        )
    )
    for page in PAGES:
        named = set(
            re.findall(r"(?:^|`)make ([a-z][a-z-]*)", page.read_text(encoding="utf8"), re.MULTILINE)
        )
        assert named <= targets, page.name


@pytest.mark.parametrize("line", CHEAP)
def test_cheap_commands_run(line, capsys):
    assert main(line.split()) == 0
    assert capsys.readouterr().out
