"""A command replaces and removes what it made, and nothing else."""

from pathlib import Path

import pytest

from data_prep.__main__ import main as prepare
from fedmuscle_lib.core.files import put
from fedmuscle_lib.core.ownership import (
    NotOurs,
    clear,
    exchange,
    headed,
    reach,
    remove,
    scratch,
    sweep,
    vacant,
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


@pytest.fixture
def new(tmp_path):
    (tmp_path / "new").mkdir()
    (tmp_path / "new/ours").write_text("2")
    (tmp_path / "new/more").write_text("2")
    return tmp_path / "new"


def test_a_folder_that_holds_something_else_is_refused(folder):
    with pytest.raises(NotOurs, match="did not write, such as thesis; move it away"):
        vacant(folder, folder, but=["ours"])
    vacant(folder, folder, but=["ours", "thesis"])
    vacant(folder, folder, ours=True)
    vacant(folder / "new", folder)


def test_a_file_that_begins_otherwise_is_refused(folder):
    headed(folder / "thesis", b"year")
    headed(folder / "new", b"year")
    for other in (folder / "ours", folder):
        with pytest.raises(NotOurs, match="not what this command wrote"):
            headed(other, b"year")


def test_nothing_goes_through_a_link(folder, tmp_path):
    (tmp_path / "link").symlink_to(folder)
    reach(tmp_path / "link/ours", tmp_path / "link")  # the folder that was named may be one
    for path in (tmp_path / "link/ours", tmp_path / "link"):
        with pytest.raises(NotOurs, match="link: a link, which is left alone"):
            reach(path, tmp_path)
    with pytest.raises(FileExistsError, match="a link"):
        put(tmp_path / "link", b"")
    assert files(folder) == {"ours": "1", "thesis": "years"}


def test_removing_leaves_what_else_is_there(folder):
    clear(folder, ["o*"])
    assert remove(folder, ["x*"]) == [folder / "thesis"]
    assert remove(folder, ["thesis"]) == [] and not folder.exists()


def test_own_files_are_replaced_and_others_stay(folder, new):
    (folder / "old").write_text("1")
    exchange(new, folder, ["ours", "old"], last="ours")
    assert files(folder) == {"ours": "2", "more": "2", "thesis": "years"}


def test_a_file_of_somebody_else_is_refused_before_anything_changes(folder, new):
    (folder / "more").write_text("mine")
    with pytest.raises(NotOurs, match="more: not what this command wrote"):
        exchange(new, folder, ["ours"], last="ours")
    assert files(folder) == {"ours": "1", "more": "mine", "thesis": "years"}


def test_an_exchange_that_was_killed_is_completed(folder, new):
    (folder / "ours").unlink()
    (folder / "more").write_text("2")  # moved before the kill
    exchange(new, folder, [], last="ours")
    assert files(folder) == {"ours": "2", "more": "2", "thesis": "years"}


def test_what_a_kill_left_is_swept(tmp_path):
    with scratch(tmp_path, "mini") as place:
        place.rename(tmp_path / ".mini-12345678")
        place.mkdir()
    sweep(tmp_path, "mini")
    assert not list(tmp_path.iterdir())


def test_a_world_is_not_made_in_a_folder_of_somebody_else(folder, capsys):
    assert prepare(["mini", "--data-dir", str(folder)]) == 2
    assert "holds other files, and no world" in capsys.readouterr().err
    assert files(folder) == {"ours": "1", "thesis": "years"}
