"""A notebook's own parameters, and the names of folders of results that follow from others."""

import json
import os
import subprocess

import nbformat
import pytest

from fedmuscle_lib.core import notebooks
from fedmuscle_lib.core.errors import DataError
from fedmuscle_lib.core.notebooks import (
    committed,
    declared,
    folder_name,
    notebook_of,
    results_folder,
    written,
)
from fedmuscle_lib.reproduce import plan, select
from fedmuscle_lib.reproduce.estimate import announcement, needed

PARAMETERS = """profile: str = "mini"
seeds: list = [0]
setup: str = "setup1"
publics: list = ["voc", "coco"]
output: str = ""
overrides: dict = {}"""


def notebook(folder, name="table", parameters=PARAMETERS, metadata=None, cells=()):
    first = nbformat.v4.new_code_cell(parameters, metadata={"tags": ["parameters"]})
    title = nbformat.v4.new_markdown_cell("# Title\n\nA claim.")
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    made = nbformat.v4.new_notebook(
        cells=[title, first, *map(nbformat.v4.new_code_cell, cells)], metadata=kernel
    )
    made.metadata.fedmuscle = metadata or {}
    nbformat.write(made, path := folder / f"{name}.ipynb")
    return path


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A clone of a committed notebook ``table``, with its figures/; returns the folder of its
    notebooks.
    """
    for name in [
        name for name in os.environ if name.startswith("GIT_")
    ]:  # of a hook, which would name another clone
        monkeypatch.delenv(name)
    (folder := tmp_path / "clone/notebooks").mkdir(parents=True)
    notebook(folder)
    who = ["-c", "user.name=a", "-c", "user.email=b"]
    for command in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", "a notebook"]):
        subprocess.run(["git", "-C", str(folder), *command], check=True)
    monkeypatch.setattr(notebooks, "FIGURES", folder.parent / "figures")
    return folder


def reference(folder, name="table", seeds=(0, 1), **parameters):
    (target := folder.parent / "figures/mini" / name).mkdir(parents=True)
    runs = [
        {
            "arm": arm,
            "address": f"{arm}-{seed}",
            "settings": {"seed": seed},
            "seconds": 60.0 * (seed + 1),
            "finished": "2026-11-20T14:23:29+00:00",
        }
        for seed in seeds
        for arm in ("local", "fedmuscle")
    ]
    facts = {
        "shared": {"origin": "shipped"},
        "arms": {"local": {}, "fedmuscle": {}},
        "runs": runs,
        "parameters": {"seeds": list(seeds)} | parameters,
    }
    (target / "provenance.json").write_text(json.dumps(facts))
    return target.parent


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({}, "table"),
        (
            {
                "seeds": [0, 1, 2],
                "output": "x",
                "profile": "small",
                "publics": ["voc", "coco"],
                "overrides": {},
            },
            "table",
        ),
        ({"overrides": {"rounds": 5}}, "table_rounds=5"),
        ({"overrides": {"data_dir": "/data", "device": "cpu"}}, "table"),
        ({"publics": ["voc"]}, "table_publics=voc"),
        (
            {"setup": "setup1_unequal", "overrides": {"lr": 0.01, "users": [4, 5]}},
            "table_setup1_unequal_lr=0.01_users=4,5",
        ),
        ({"publics": ["coco"]}, "table"),  # the reference's
    ],
)
def test_a_folder_is_named_after_parameters_that_are_neither_the_notebooks_nor_the_references(
    clone, given, name
):
    reference(clone, publics=["coco"])
    assert folder_name(clone / "table.ipynb", "mini", given) == name


def test_a_folders_name_is_one_whatever_the_values_are(clone):
    names = [
        folder_name(clone / "table.ipynb", "mini", {"overrides": {"own": own}})
        for own in ({"4": "/a b"}, {"4": "../c"}, "x" * 999, "", "\n")
    ]
    assert len(set(names)) == len(names) and all(
        len(name) < 30 and "/" not in name for name in names
    )


def test_saved_parameters_are_not_the_notebooks_own(clone, caplog):
    path = notebook(
        clone,
        parameters=PARAMETERS.replace(
            "overrides: dict = {}", 'overrides: dict = {"rounds": 5}\nfresh: int = 1'
        ),
    )
    assert declared(path)["overrides"].value == {"rounds": 5}
    assert committed(path)["overrides"] == {} and committed(path)["fresh"] == 1
    assert folder_name(path, "mini", {"overrides": {"rounds": 5}}) == "table_rounds=5"
    given = plan([path], {"profile": "mini"}, {})
    assert given[path] == {"profile": "mini", "overrides": {}}
    assert "the saved notebook's overrides = {'rounds': 5} is not used" in caplog.text


def test_a_changed_parameter_leaves_the_usual_results_alone(clone, tmp_path, monkeypatch):
    monkeypatch.chdir(clone)
    usual = results_folder("table", "mini", str(tmp_path / "results"), overrides={})
    changed = results_folder("table", "mini", str(tmp_path / "results"), overrides={"rounds": 5})
    assert usual.name == "table" and changed.name == "table_rounds=5" and changed.is_dir()
    assert (
        notebook_of(changed.name) == "table"
        and notebook_of("delta_map_rounds=5") == "delta_map"
        and notebook_of("nothing") == "nothing"
    )
    assert written(notebooks.ROOT / "results/mini/table7") == "Written to results/mini/table7"
    assert written(changed) == f"Written to {changed}"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ('{"cells": 1}', "not a notebook"),
        ('{"cells": [1]}', "not a notebook"),
        ("[]", "holds a list"),
        ('{"cells": [{"metadata": {}}]}', ""),
    ],
)
def test_a_file_that_is_no_notebook_is_named(tmp_path, content, why):
    (path := tmp_path / "a.ipynb").write_text(content)
    if not why:
        assert declared(path) == {}
        return
    with pytest.raises(DataError, match=f"a.ipynb: {why}"):
        declared(path)


def test_a_parameters_cell_that_is_not_python_is_named(tmp_path):
    with pytest.raises(DataError, match="its parameters cell is not Python: line 1"):
        declared(notebook(tmp_path, parameters="a: int = "))


# --- what would run, and for how long


def test_what_will_run_is_said_before_it_runs(clone, store):
    figures, path = reference(clone), clone / "table.ipynb"
    assert needed(path, {"profile": "mini"}, figures) == {"local-0": 60, "fedmuscle-0": 60}
    assert needed(path, {"profile": "mini", "setup": "setup2"}, figures) == {}
    planned = [(path, {"seeds": [0, 1]}), (notebook(clone, "other"), {"profile": "mini"})]
    first, unknown, altogether = announcement(planned, figures, 2)
    assert first == "table: 4 runs, 6 min" and unknown.startswith("other: time unknown")
    assert "4 runs, 3 min, 2 notebooks at a time" in altogether


def test_notebooks_outside_the_core_run_if_they_are_named(tmp_path):
    for name, metadata in {
        "a": {"core": True},
        "b": {"system": "fedloge"},
        "c": {"results": False},
    }.items():
        notebook(tmp_path, name, metadata=metadata)
    chosen = {
        names: [path.stem for path in select(names.split() or None, tmp_path)]
        for names in ("", "all", "b", "all c")
    }
    assert chosen == {"": ["a"], "all": ["a", "b"], "b": ["b"], "all c": ["a", "b", "c"]}
