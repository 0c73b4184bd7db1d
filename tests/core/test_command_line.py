"""Paths that people write, on command lines and elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pytest
import typer

from fedmuscle_lib import load_user
from fedmuscle_lib.core.command_line import carried_out
from fedmuscle_lib.core.errors import DataError
from fedmuscle_lib.core.notebooks import results_folder
from fedmuscle_lib.fedmuscle.settings import Settings
from fedmuscle_lib.runs import default_store


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.mark.parametrize(
    ("line", "code"), [(["--folder=~/a"], 0), (["--folder="], 2), (["--folder", ""], 2), ([""], 2)]
)
def test_a_tilde_is_the_home_folder_and_no_value_is_empty(tmp_path, line, code):
    app = typer.Typer()

    @app.command()
    def go(folder: Annotated[Path, typer.Option()]) -> None:
        assert folder == tmp_path / "a"

    assert carried_out(app, line, "go") == code


def test_functions_and_the_environment_read_paths_alike(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDMUSCLE_RUNS", "~/runs")
    assert default_store().root == tmp_path / "runs"
    assert results_folder("table7", "mini", "~/results") == tmp_path / "results/mini/table7"
    with pytest.raises(DataError, match=f"^{tmp_path}/user_1/user.json: no such file"):
        load_user("~/user_1")
    assert Settings(own={1: {"folder": "~/mine"}}).own[1].folder == str(tmp_path / "mine")
