"""No command removes or replaces what it did not make: each is tried against others' files, folders
and links in its place.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import pytest
import typer
from pandas.testing import assert_frame_equal
from tiny_worlds import shrink

from data_prep import __main__ as data_prep
from data_prep.io import build
from data_prep.pretrain.mini_backbones import pretrain
from data_prep.pretrain.training import read_report
from data_prep.pretrain.wheel_checkpoints import shipped
from data_prep.world import mini
from fedmuscle_lib import __main__ as library
from fedmuscle_lib import cli, run
from fedmuscle_lib.core import ownership
from fedmuscle_lib.core.files import ROOT, put
from fedmuscle_lib.core.style import save
from fedmuscle_lib.reproduce import children, grid, index
from fedmuscle_lib.runs import Store

ADDRESS = "0123456789abcdef-01234567"
NEXT = mini.VERSION + 1
USERS = ["--algorithm", "local", "--users", "6", "--rounds", "1"]


@dataclass(frozen=True)
class Row:
    """A command, and a place that it would write to.

    Attributes:
        arguments: of the command, given the folder that it writes to.
        place: below that folder.
        accepts: what may lie there, since the command only adds to it.
    """

    arguments: Callable[[Path], list[object]]
    place: str
    accepts: tuple[str, ...] = ()


def _in_world(name: str, *more: object) -> Callable[[Path], list[object]]:
    """Arguments of a command that trains in the embedded world."""
    return lambda to: [name, "--data-dir", ROOT / "data/mini", *more, to]


def _set(name: str) -> Callable[[Path], list[object]]:
    images = ["--images", "archives"] if name in {"imagenet-lt", "inaturalist"} else []
    return lambda to: [name, "--archives", "archives", "--data-dir", to, *images]


def _place(name: str) -> str:
    module, entry = data_prep._DATA_SETS[name]
    options = {option.name: option.default for option in entry.takes}
    place, *_ = module.places(options) if hasattr(module, "places") else [build.Place(entry.folder)]
    return "/".join([place.folder, *place.entries[:1]])


PREPARING = {
    "mini": [Row(lambda to: ["mini", "--data-dir", to / "mini"], "mini")],
    "mini-backbones": [
        Row(lambda to: ["mini-backbones", "vit-tiny", "--steps", 1, "--out", to], "vit-tiny"),
        Row(
            lambda to: ["mini-backbones", "vit-tiny", "--steps", 1, "--fresh", "--out", to],
            "vit-tiny",
        ),
        Row(lambda to: ["mini-backbones", "bert-mini", "--steps", 1, "--out", to], "bert-mini"),
    ],
    "backbones": [
        Row(
            lambda to: ["backbones", "hybrid-vit-small", "--archives", "archives", "--out", to],
            "hybrid-vit-small",
        ),
        Row(
            lambda to: [
                "backbones",
                "hybrid-vit-small",
                "--archives",
                "archives",
                "--fresh",
                "--out",
                to,
            ],
            "hybrid-vit-small",
        ),
    ],
    "text-backbones": [
        Row(lambda to: ["text-backbones", "--archives", "archives", "--out", to], "gpt2")
    ],
    "diffusion": [Row(lambda to: ["diffusion", "--steps", 1, "--out", to / "model"], "model")],
    "synthetic": [
        Row(lambda to: ["synthetic", "--data-dir", to], "public/synthetic"),
        Row(lambda to: ["synthetic", "--data-dir", to, "--sheet", to / "sheet.png"], "sheet.png"),
        Row(lambda to: ["synthetic", "--data-dir", to, "--sheet", to / "sheet.png"], "sheet.json"),
    ],
    "pretrained": [
        Row(
            lambda to, name=name: [
                "pretrained",
                name,
                "--archives",
                "archives",
                "--models-path",
                to,
            ],
            name,
        )  # type: ignore[misc]
        for name in (next(iter(shipped())), "minilm-l6")
    ],
    "checkpoints": [
        Row(
            lambda to: [
                "checkpoints",
                "WinKawaks/vit-tiny-patch16-224",
                "--random",
                "--models-path",
                to,
            ],
            "WinKawaks/vit-tiny-patch16-224",
        ),
        Row(
            lambda to: [
                "checkpoints",
                "sentence-transformers/all-MiniLM-L6-v2",
                "--models-path",
                to,
            ],
            "minilm-l6",
        ),
    ],
    "skeleton": [
        Row(lambda to: ["skeleton", "--data-dir", to], "IC", ("a_folder", "a_link_to_a_folder"))
    ],
    "small": [Row(lambda to: ["small", "--archives", "archives", "--data-dir", to], "IC/CIFAR10")],
} | {name: [Row(_set(name), _place(name))] for name in data_prep._DATA_SETS}
RUNNING = {
    "run": [
        Row(_in_world("run", *USERS, "--save-models"), "user_6"),
        Row(_in_world("run", *USERS, "--logs"), "local_voc_seed0", ("a_folder",)),
        Row(_in_world("run", *USERS, "--logs"), "local_voc_seed0/client_6.csv"),
    ],
    "fedloge": [Row(_in_world("fedloge", "--save-models"), "model.safetensors")],
    "reproduce": [
        Row(lambda to: ["reproduce", "table7", "--output", to], "mini/table7"),
        Row(lambda to: ["reproduce", "table7", "--output", to], "mini/index.html"),
    ],
    "runs delete": [Row(lambda to: ["runs", "delete", ADDRESS, "--yes"], ADDRESS, ("a_folder",))],
    "runs ship": [Row(lambda to: ["runs", "ship", to / "table7"], "runs.zip")],
    "notebook": [Row(lambda to: ["notebook", "depth", "--folder", to], "depth.ipynb")],
    "keys": [Row(lambda to: ["keys", to / "keys", "--users", "1"], "keys", ("a_folder",))],
}
# write to temporary folders and the store alone; a server and a party only to folders that their
# files name, which tests/network has
READING = {"creamfl", "realign", "runs", "verify", "bench", "algorithms", "serve", "join"}
PROGRAMS = {
    "python -m data_prep": (data_prep, PREPARING),
    "python -m fedmuscle_lib": (library, RUNNING),
}
ROWS = [
    (program, name, row)
    for program, (_, rows) in PROGRAMS.items()
    for name, own in rows.items()
    for row in own
]


def _commands(group: click.Command, before: tuple[str, ...] = ()) -> Iterator[str]:
    if before:
        yield " ".join(before)
    for name, command in getattr(group, "commands", {}).items():
        yield from _commands(command, (*before, name))


def test_every_command_has_a_row():
    assert {*_commands(typer.main.get_command(data_prep.app))} == {*PREPARING}
    assert {*_commands(typer.main.get_command(cli.app))} == {*RUNNING, *READING}


# What lies in the place before the command comes.


def _a_file(place: Path, outside: Path) -> None:
    place.write_text("a thesis")


def _a_folder(place: Path, outside: Path) -> None:
    (place / "inside").mkdir(parents=True)
    (place / "thesis.txt").write_text("a thesis")
    (place / "inside/README.md").write_text("notes")


def _a_link_to_a_file(place: Path, outside: Path) -> None:
    place.symlink_to(outside / "thesis.txt")


def _a_link_to_a_folder(place: Path, outside: Path) -> None:
    place.symlink_to(outside)


def _a_link_to_nothing(place: Path, outside: Path) -> None:
    place.symlink_to(outside / "nothing")


def _tree(root: Path) -> dict[str, bytes | str]:
    """Files with their content, links with where they lead."""
    found: dict[str, bytes | str] = {}
    for path in root.rglob("*"):
        if path.is_symlink():
            found[str(path)] = os.readlink(path)
        elif path.is_file():
            found[str(path)] = path.read_bytes()
    return found


@pytest.fixture
def to(tmp_path, monkeypatch, mini_world) -> Path:
    """The folder that is named to commands; beside it lie things of others.

    The store is there too.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDMUSCLE_RUNS", str(tmp_path / "to"))
    monkeypatch.setenv("FEDMUSCLE_SHIPPED", "0")
    for folder in ("archives", "to", "outside/inside"):
        (tmp_path / folder).mkdir(parents=True)
    for name in (
        "to/letters.txt",
        "to/.voc-original.txt",
        "outside/thesis.txt",
        "outside/inside/config.json",
    ):
        (tmp_path / name).write_text(f"{name}: of somebody else")
    return tmp_path / "to"


LIES = (_a_file, _a_folder, _a_link_to_a_file, _a_link_to_a_folder, _a_link_to_nothing)
WHOLLY = (
    "yahoo",
    "food101",
    "cifar10-lt",
)  # all data sets are put in place by one function: others get one of the five each
TRIED = [
    (program, name, row, lies)
    for k, (program, name, row) in enumerate(ROWS)
    for lies in (LIES if name in WHOLLY or name not in data_prep._DATA_SETS else LIES[k % 5 :][:1])
]


@pytest.mark.parametrize(
    ("program", "name", "row", "lies"),
    TRIED,
    ids=[f"{name}: {row.place}, {lies.__name__[1:]}" for _, name, row, lies in TRIED],
)
def test_what_lies_in_the_place_is_left_alone_and_named(program, name, row, lies, to, capsys):
    if name == "runs ship":
        shutil.copytree(ROOT / "figures/mini/table7", to / "table7")
    place = to / row.place
    place.parent.mkdir(parents=True, exist_ok=True)
    lies(place, to.parent / "outside")
    before = _tree(to.parent)
    code = PROGRAMS[program][0].main([str(argument) for argument in row.arguments(to)])
    said = capsys.readouterr()
    after = _tree(to.parent)
    changed = [path for path, content in before.items() if after.get(path) != content]
    assert not changed
    if lies.__name__[1:] in row.accepts:
        assert code == 0 and (name != "runs delete" or f"left alone: {place}" in said.out)
        return
    assert code == 2
    (line,) = (line for line in said.err.splitlines() if line.startswith("error: "))
    assert (place.name in line or str(place.parent) in line) and said.err.splitlines()[-1] == line


@pytest.mark.parametrize("name", WHOLLY)
def test_no_data_set_is_written_through_a_link_even_by_force(name, to, capsys):
    place = to / _place(name)
    place.parent.parent.mkdir(parents=True, exist_ok=True)
    place.parent.symlink_to(to.parent / "outside")
    before = _tree(to.parent)
    assert data_prep.main([*map(str, _set(name)(to)), "--force"]) == 2
    assert f"{place.parent}: a link, which is left alone" in capsys.readouterr().err
    assert _tree(to.parent) == before


@pytest.mark.parametrize("name", data_prep._DATA_SETS)
def test_a_file_of_somebody_else_in_a_data_sets_folder_is_counted(name, to, capsys):
    """The manifest says how many files are the command's; another request would replace the
    folder.
    """
    module, entry = data_prep._DATA_SETS[name]
    options = {option.name: option.default for option in entry.takes}
    places = module.places(options) if hasattr(module, "places") else (build.Place(entry.folder),)
    for each in places:
        manifest = {
            "dataset": name,
            "whole": True,
            "files": 0,
            "versions": {},
            "request": {},
            "archives": [],
        }
        put(to / each.folder / "manifest.json", json.dumps(manifest).encode())
    own = to / places[0].folder / (places[0].entries or ("train",))[0] / "mine/thesis.txt"
    put(own, b"a thesis")
    before = _tree(to)
    assert data_prep.main([str(argument) for argument in _set(name)(to)]) == 2
    assert (
        "holds files that this command did not write (1 more than its manifest says)"
        in capsys.readouterr().err
    )
    assert {path: content for path, content in _tree(to).items() if path in before} == before


# --- the embedded world


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("prepared") / "mini"
    with pytest.MonkeyPatch.context() as patch:
        shrink(patch)
        mini.prepare(folder)
    return folder


@pytest.fixture
def tiny_world(to, monkeypatch, prepared) -> Path:
    """A world of few files, with a folder of somebody else's inside."""
    shrink(monkeypatch)
    shutil.copytree(prepared, to / "mini")
    put(to / "mini/my_folder/train/client_0.pkl", b"mine")
    return to / "mini"


def test_a_world_is_made_whole_or_anew_and_a_folder_of_somebody_else_stays(
    tiny_world, monkeypatch, capsys
):
    manifest = json.loads((tiny_world / "manifest.json").read_text())
    written = (tiny_world / "manifest.json").stat().st_ino
    command = ["mini", "--data-dir", str(tiny_world)]
    assert data_prep.main(command) == 0
    assert (tiny_world / "manifest.json").stat().st_ino == written, (
        "it is whole, whatever lies beside it"
    )
    assert (
        f"left alone, such as {tiny_world}/my_folder/train/client_0.pkl" in capsys.readouterr().out
    )
    damaged, lost = (tiny_world / name for name in manifest["files"][:2])
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:100])
    lost.unlink()
    assert data_prep.main(command) == 0 and lost.exists() and damaged.read_bytes() == whole
    monkeypatch.setattr(mini, "VERSION", NEXT)
    monkeypatch.setattr(mini, "TEST", dict.fromkeys(mini.FOLDERS, 1))
    assert data_prep.main(command) == 0
    fresh = json.loads((tiny_world / "manifest.json").read_text())
    gone = {*manifest["files"]} - {*fresh["files"]}
    assert (
        fresh["version"].startswith(f"{NEXT}-")
        and gone
        and not any((tiny_world / name).exists() for name in gone)
    )
    assert (tiny_world / "my_folder/train/client_0.pkl").read_bytes() == b"mine"
    assert mini.others(tiny_world, fresh) == ["my_folder/train/client_0.pkl"]


def test_a_file_of_the_world_that_somebody_replaced_is_refused(tiny_world, capsys):
    own = tiny_world / "IC/CIFAR10/train/client_0.pkl"
    own.write_bytes(b"my data")
    before = _tree(tiny_world)
    assert data_prep.main(["mini", "--data-dir", str(tiny_world)]) == 2
    assert f"{own}: not what this command wrote" in capsys.readouterr().err
    assert _tree(tiny_world) == before


def test_a_link_inside_the_world_is_not_followed(tiny_world, capsys):
    outside = tiny_world.parents[1] / "outside"
    shutil.rmtree(tiny_world / "IC/CIFAR10")
    (tiny_world / "IC/CIFAR10").symlink_to(outside)
    before = _tree(tiny_world.parents[1])
    assert data_prep.main(["mini", "--data-dir", str(tiny_world)]) == 2
    assert f"{tiny_world}/IC/CIFAR10: a link, which is left alone" in capsys.readouterr().err
    assert _tree(tiny_world.parents[1]) == before


def test_a_manifest_that_names_files_outside_of_the_world_loses_none(tiny_world, monkeypatch):
    outside = tiny_world.parents[1] / "outside"
    manifest = json.loads((tiny_world / "manifest.json").read_text())
    files = [*manifest["files"], "../../outside/thesis.txt", str(outside / "inside/config.json")]
    manifest |= {"files": files, "sha256": mini._sum(tiny_world, files)}
    (tiny_world / "manifest.json").write_text(json.dumps(manifest))
    before = _tree(outside)
    monkeypatch.setattr(mini, "VERSION", NEXT)
    mini.prepare(tiny_world)
    assert _tree(outside) == before


@pytest.mark.parametrize("moved", [0, 1, 20])
def test_a_world_is_completed_that_was_killed_while_its_files_were_exchanged(
    tiny_world, monkeypatch, moved
):
    monkeypatch.setattr(mini, "VERSION", NEXT)
    monkeypatch.setattr(mini, "TEST", dict.fromkeys(mini.FOLDERS, 1))
    replace, done = os.replace, []

    def killed(source, target):
        if (
            Path(source).parts[-1].startswith(".") or len(done) < moved
        ):  # what ``put`` writes, and so many of the world's files
            done.extend([] if Path(source).parts[-1].startswith(".") else [target])
            return replace(source, target)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(os, "replace", killed)
        mini.prepare(tiny_world)
    manifest = mini.prepare(tiny_world)
    assert manifest["version"].startswith(f"{NEXT}-") and mini.prepare(tiny_world) == manifest
    assert mini.others(tiny_world, manifest) == ["my_folder/train/client_0.pkl"]


# --- the store


def test_only_runs_are_deleted_from_a_store_that_holds_other_things(to, capsys):
    for name in (
        ".git/HEAD",
        "thesis/chapter.tex",
        "0123456789abcdef/x",
        f"{ADDRESS}x/y",
        f"{ADDRESS}/notes.txt",
    ):
        put(to / name, b"of somebody else")
    (to / "fedcba9876543210-01234567").symlink_to(to.parent / "outside")
    before = _tree(to.parent)
    entry = Store(to).entry(ADDRESS)
    with entry.lock():
        entry.save_checkpoint(b"x")
        put(entry.folder / ".run.zip-notes", b"mine")
    before |= {str(entry.folder / ".run.zip-notes"): b"mine"}
    assert library.main(["runs", "delete", "--interrupted", "--yes"]) == 2
    assert "fedcba9876543210-01234567: a link, which is left alone" in capsys.readouterr().err
    assert (entry.folder / "checkpoint.pt").exists(), "nothing is deleted before all is checked"
    assert library.main(["runs", "delete", "thesis", "--yes"]) == 2
    assert library.main(["runs", "delete", ADDRESS, "--yes"]) == 0
    assert (
        f"left alone: {entry.folder / '.run.zip-notes'}, {entry.folder / 'notes.txt'}"
        in capsys.readouterr().out
    )
    assert _tree(to.parent) == before


def test_a_run_is_not_computed_into_a_link(to, settings, tmp_path):
    store = Store(tmp_path / "store")
    history = run(settings(algorithm="local", rounds=1, users=(6,)), progress=str, store=store)
    folder = store.entry(history.provenance["address"]).folder
    folder.rename(to / "elsewhere")
    folder.symlink_to(to / "elsewhere")
    again = run(
        settings(algorithm="local", rounds=1, users=(6,)), progress=str, store=store
    )  # it is only read
    assert_frame_equal(again.metrics, history.metrics)
    (to / "elsewhere/run.zip").write_bytes(b"damaged")
    before = _tree(to)
    with pytest.raises(ownership.NotOurs, match="a link, which is left alone"):
        run(settings(algorithm="local", rounds=1, users=(6,)), progress=str, store=store)
    assert _tree(to) == before


# --- results, models and what functions write


def test_an_interrupt_restores_the_results_of_a_notebook_and_touches_nothing_else(to, monkeypatch):
    folder = to / "mini/table7"
    for name, content in {
        "result.json": b"{}",
        "table.csv": b"old",
        "drafts/table.csv": b"mine",
        "thesis.txt": b"mine",
    }.items():
        put(folder / name, content)
    (folder / "link.csv").symlink_to(to.parent / "outside/thesis.txt")
    before = _tree(to.parent)

    def cut(path, folder, parameters, processes):
        put(folder / "table.csv", b"new")
        put(folder / "delta.csv", b"new")
        raise KeyboardInterrupt

    monkeypatch.setattr(children, "_execute", cut)
    with pytest.raises(KeyboardInterrupt):
        children.execute(ROOT / "notebooks/table7.ipynb", folder, {}, None)
    assert _tree(to.parent) == before


def test_no_notebook_runs_where_one_of_several_folders_is_somebody_elses(to, monkeypatch):
    put(to / "mini/table9/thesis.txt", b"mine")
    monkeypatch.setattr(grid, "Children", None)
    with pytest.raises(
        ownership.NotOurs, match="table9: holds what this command did not write, such as thesis.txt"
    ):
        grid.reproduce(["table7", "table9"], output=to)


def test_a_page_of_ours_is_recognised(to):
    assert index(to).read_bytes() and index(to) == to / "index.html"


@pytest.mark.slow
def test_a_saved_user_is_replaced_and_what_somebody_changed_or_added_is_not(to, capsys):
    command = [
        str(argument) for argument in _in_world("run", *USERS, "--save-models")(to / "users")
    ]
    place = to / "users/user_6"
    assert library.main(command) == 0
    (place / "drafts").mkdir()
    (place / "drafts/thesis.txt").write_text("mine")
    assert library.main(command) == 0 and (place / "drafts/thesis.txt").read_text() == "mine"
    for name in ("README.md", "head.safetensors"):
        whole = (place / name).read_bytes()
        (place / name).write_bytes(whole + b" and my notes")
        before = _tree(to / "users")
        assert library.main(command) == 2
        assert f"{place / name}: changed since it was saved" in capsys.readouterr().err
        assert _tree(to / "users") == before
        (place / name).write_bytes(whole)


def test_a_backbone_of_ours_is_made_again_and_what_lies_beside_it_stays(to, monkeypatch):
    shrink(monkeypatch)
    monkeypatch.setattr("data_prep.pretrain.mini_backbones._accuracy", lambda *_: 0.0)
    pretrain("weak-vit-tiny", to, steps=1)
    put(to / "weak-vit-tiny/drafts/thesis.txt", b"mine")
    pretrain("weak-vit-tiny", to, steps=2)
    assert (
        read_report(to / "weak-vit-tiny")["steps"] == 2
        and (to / "weak-vit-tiny/drafts/thesis.txt").read_bytes() == b"mine"
    )


def test_nothing_is_written_through_a_link(to, tmp_path):
    from matplotlib.figure import Figure

    (to / "figure.svg").symlink_to(tmp_path / "outside/thesis.txt")
    before = _tree(tmp_path)
    for write in (lambda: save(Figure(), to, "figure"), lambda: put(to / "figure.svg", b"x")):
        with pytest.raises(FileExistsError, match="a link, which is left alone"):
            write()
    assert _tree(tmp_path) == before
