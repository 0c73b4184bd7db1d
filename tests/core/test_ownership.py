"""A command replaces and removes what it made, and nothing else."""

from pathlib import Path

import pytest

from data_prep.__main__ import main as prepare
from fedmuscle_lib.core.ownership import (
    NotOurs,
    refuse_other_file,
    refuse_others,
)


def files(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def folder(tmp_path):
    """A folder with a file of the command's, ``ours``, and one of the user's, ``thesis``."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/ours").write_text("1")
    (tmp_path / "folder/thesis").write_text("years")
    return tmp_path / "folder"


def test_a_folder_that_holds_something_else_is_refused(folder):
    with pytest.raises(NotOurs, match="did not write, such as ours; move it away"):
        refuse_others(folder, ours=False)
    refuse_others(folder, ours=True)
    refuse_others(folder / "new", ours=False)


def test_a_file_that_begins_otherwise_is_refused(folder):
    refuse_other_file(folder / "thesis", b"year")
    refuse_other_file(folder / "new", b"year")
    for other in (folder / "ours", folder):
        with pytest.raises(NotOurs, match="not what this command wrote"):
            refuse_other_file(other, b"year")


def test_a_world_is_not_made_in_a_folder_of_somebody_else(folder, capsys):
    assert prepare(["mini", "--data-dir", str(folder)]) == 2
    assert "holds other files, and no world" in capsys.readouterr().err
    assert files(folder) == {"ours": "1", "thesis": "years"}
