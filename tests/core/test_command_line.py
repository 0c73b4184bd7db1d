"""Every command of both programs reads its options by the same rules."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.main import get_command

import data_prep.__main__ as preparation
from data_prep.io.hugging_face import write_client
from fedmuscle_lib import cli, load_user
from fedmuscle_lib.core.command_line import App, Command
from fedmuscle_lib.core.errors import DataError
from fedmuscle_lib.core.files import user_path
from fedmuscle_lib.core.notebooks import results_folder
from fedmuscle_lib.fedmuscle.settings import Settings
from fedmuscle_lib.reproduce import plan, select
from fedmuscle_lib.runs import SYSTEMS, default_store, named


def commands(group: Any, name: str) -> Iterator[tuple[str, Any]]:
    for part, command in group.commands.items():
        yield from (
            commands(command, f"{name} {part}")
            if hasattr(command, "commands")
            else [(f"{name} {part}", command)]
        )


EVERY = dict(commands(get_command(cli.app), "fedmuscle_lib")) | dict(
    commands(get_command(preparation.app), "data_prep")
)


def test_every_command_refuses_empty_values():
    assert not [name for name, command in EVERY.items() if not isinstance(command, Command)]


@pytest.fixture
def given() -> list[Any]:
    """What the last call of the command of :func:`app` was given."""
    return []


@pytest.fixture
def app(given) -> App:
    made = App(add_completion=False)

    @made.command()
    def go(
        folder: Annotated[Path, typer.Option()] = Path("usual"),
        more: Annotated[list[Path] | None, typer.Argument()] = None,
        name: Annotated[list[str] | None, typer.Option("-p")] = None,
        fast: Annotated[bool, typer.Option("--fast/--slow")] = False,
    ) -> None:
        given[:] = [folder, more, name, fast]

    return made


def call(app: App, *arguments: str) -> None:
    app(list(arguments), standalone_mode=False)


def test_a_tilde_is_the_home_folder_wherever_a_path_is_given(app, given, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    call(app, "--folder=~/a", "~/b", "c", "-p", "~", "-p", "~")
    assert given == [tmp_path / "a", [tmp_path / "b", Path("c")], ["~", "~"], False]
    call(app)
    assert given == [Path("usual"), [], [], False] or given == [Path("usual"), None, None, False]


@pytest.mark.parametrize(
    "arguments", [("--folder=",), ("--folder", ""), ("",), ("--folder", "~nobody-of-this-name")]
)
def test_what_is_refused(app, arguments):
    with pytest.raises((ValueError, RuntimeError), match="the value is empty|home"):
        call(app, *arguments)


@pytest.mark.parametrize("system", [named(name).settings for name in SYSTEMS])
def test_every_place_of_settings_may_begin_with_a_tilde(system, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in system.places():
        assert getattr(system(**{name: "~/data"}), name) == tmp_path / "data"
        with pytest.raises(ValueError, match="the path is empty"):
            system(**{name: ""})


def test_functions_notebooks_and_the_environment_read_paths_alike(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("FEDMUSCLE_RUNS", "~/runs")
    assert default_store().root == tmp_path / "runs"
    assert results_folder("table7", "mini", "~/results") == tmp_path / "results/mini/table7"
    (given,) = plan(
        select(["table7"]), {"profile": "mini", "seeds": [0], "output": ""}, {"data_dir": "~/data"}
    ).values()
    assert given["overrides"] == {"data_dir": str(tmp_path / "data")}
    with pytest.raises(DataError, match=f"^{tmp_path}/user_1/user.json: no such file"):
        load_user("~/user_1")
    assert (
        write_client("~/client_0.pkl", [{"text": "one", "label": 0}], classes=2, text="text") == 1
    )
    assert (tmp_path / "client_0.pkl").is_file()
    for call in (load_user, lambda path: write_client(path, [], classes=2, text="text")):
        with pytest.raises(ValueError, match="the path is empty"):
            call("")


def test_an_own_folder_may_begin_with_a_tilde(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Settings(own={1: {"folder": "~/mine"}}).own[1].folder == str(tmp_path / "mine")
    assert user_path("~") == tmp_path
