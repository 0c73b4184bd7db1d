"""Notebooks as they are executed: from shipped runs they draw the committed reference, and a new
run's numbers are those of its history.
"""

import copy
import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as xml
from pathlib import Path

import nbformat
import pandas as pd
import pytest
from staged import NOTEBOOKS

from fedmuscle_lib import Settings, Store
from fedmuscle_lib.cli.notebook import command as lay_down
from fedmuscle_lib.fedmuscle.ablations import ABLATION_ARMS
from fedmuscle_lib.reproduce import reproduce
from fedmuscle_lib.runs import stored

ROOT = Path(__file__).parents[2]
FIGURES = ROOT / "figures"
CHECKED = {"nbval-check-output", "keep_output"}  # compared by nbval, kept by nbstripout
REFERENCES = sorted(
    {
        json.loads(path.read_text())["command"].split()[4]
        for path in FIGURES.glob("mini/*/provenance.json")
    }
)
IN_THE_GATE = "figure8"
COMPUTED = {
    "sse_c.csv": 0.01
}  # when it is drawn, by an iteration, which another kind of processor rounds otherwise; tolerance
TINY = {
    "users": [4, 5, 6],
    "others": 2,
    "rounds": 2,
    "local_epochs": 2,
    "public_size": 32,
    "evaluate_every": 1,
}


def drawn(names, folder, **options):
    """Results of notebooks that were executed without a fault."""
    outcomes = reproduce(names, output=folder, folder=NOTEBOOKS, **options)
    assert outcomes and [(outcome.failure, outcome.missing) for outcome in outcomes] == [
        (None, None)
    ] * len(outcomes)
    return folder / "mini"


def drawn_from_shipped_runs_is_the_reference(name, folder, monkeypatch):
    monkeypatch.setenv(
        "FEDMUSCLE_RUNS", str(folder / "runs")
    )  # an empty store: what is drawn came with the repository
    results = drawn([name], folder / "results", shipped_only=True)
    folders = [path for path in results.iterdir() if path.is_dir()]
    assert folders
    for own in folders:
        reference = FIGURES / "mini" / own.name
        names = {path.name for path in reference.glob("*.csv")}
        assert names == {path.name for path in own.glob("*.csv")}
        changed = [
            name
            for name in sorted(names)
            if (own / name).read_bytes() != (reference / name).read_bytes()
        ]
        assert [name for name in changed if name not in COMPUTED] == []
        for name in changed:
            pd.testing.assert_frame_equal(
                *(pd.read_csv(where / name) for where in (own, reference)),
                rtol=0,
                atol=COMPUTED[name],
            )


def test_a_reference_is_drawn_from_shipped_runs_as_it_was(mini_world, tmp_path, monkeypatch):
    drawn_from_shipped_runs_is_the_reference(IN_THE_GATE, tmp_path, monkeypatch)
    delta = pd.read_csv(tmp_path / f"results/mini/{IN_THE_GATE}/delta.csv").set_index(
        ["public", "algorithm"]
    )
    assert delta.paper_delta["voc", "fedmuscle"] == 26.7
    assert delta.delta["voc", "local"] == 0 and delta.n_seeds["voc", "fedmuscle"] >= 3


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in REFERENCES if name != IN_THE_GATE])
def test_every_other_reference_is_drawn_from_shipped_runs_as_it_was(
    mini_world, tmp_path, monkeypatch, name
):
    drawn_from_shipped_runs_is_the_reference(name, tmp_path, monkeypatch)


@pytest.fixture(scope="module")
def trained(mini_world, tmp_path_factory):
    """Table 7 of three users and two rounds, computed: the folder of its results, and the store."""
    folder = tmp_path_factory.mktemp("trained")
    overrides = TINY | {"data_dir": str(mini_world), "models_path": str(mini_world / "models")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDMUSCLE_RUNS", str(folder / "runs"))
        results = drawn(["table7"], folder / "results", overrides=overrides | {"publics": ["voc"]})
    (where,) = (path for path in results.iterdir() if path.is_dir())
    return where, folder / "runs", overrides


@pytest.mark.slow
def test_a_table_holds_what_its_runs_measured(trained):
    folder, runs, overrides = trained
    for phase, suffix in (("after_alignment", ""), ("after_local", "_after_local")):
        table, delta = (pd.read_csv(folder / f"{name}{suffix}.csv") for name in ("table", "delta"))
        assert delta.paper_delta.isna().all()  # the paper's is over all of its users
        measured = {
            name: (
                stored(Settings(**overrides | {"algorithm": name}), Store(runs)).final(phase).value
            )
            for name in ("local", "fedmuscle", "gramian", "pairwise", "self")
        }
        for name, values in measured.items():
            assert table[table.algorithm == name]["mean"].tolist() == pytest.approx(
                values.tolist(), abs=1e-4
            )
            expected = 100 * (values / measured["local"] - 1).mean()
            assert delta.set_index("algorithm").delta[name] == pytest.approx(expected, abs=1e-3)
    assert table.n_seeds.eq(1).all() and table["std"].isna().all()
    assert table.query("algorithm == 'fedmuscle' and user == 4").paper_mean.item() == 36.67


@pytest.mark.slow
def test_the_skeleton_of_a_notebook_is_one_that_runs(trained, tmp_path, monkeypatch):
    _, runs, overrides = trained
    monkeypatch.setenv("FEDMUSCLE_RUNS", str(runs))
    lay_down("peers", tmp_path)
    (outcome,) = reproduce(
        output=tmp_path, folder=tmp_path, overrides=overrides | {"values": [1, 2]}
    )
    assert outcome.failure is None
    (delta,) = (
        pd.read_csv(path).set_index(["others", "algorithm"]).delta
        for path in tmp_path.glob("mini/peers*/delta.csv")
    )
    assert list(delta.index) == [(m, name) for m in (1, 2) for name in ABLATION_ARMS]
    local, two = (
        stored(Settings(**overrides | {"algorithm": name}), Store(runs)).final().value
        for name in ("local", "fedmuscle")
    )
    assert delta[2, "fedmuscle"] == pytest.approx(100 * (two / local - 1).mean(), abs=1e-3)


@pytest.mark.slow
def test_theory_writes_its_tables_and_figures_without_runs_and_data(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDMUSCLE_RUNS", str(tmp_path / "runs"))
    small = {"batch_sizes": [4, 8], "members": [1, 2], "overlaps": [0.0, 0.5]}
    (folder,) = (
        path
        for path in drawn(["theory"], tmp_path, overrides=small, shipped_only=True).iterdir()
        if path.is_dir()
    )
    assert {path.stem for path in folder.glob("*.csv")} == {
        "bounds",
        "agreement",
        "venn",
        "operations",
    }
    assert {path.stem for path in folder.glob("*.svg")} == {"bounds", "figure7"}
    assert (
        "-p 'batch_sizes=[4, 8]'" in json.loads((folder / "provenance.json").read_text())["command"]
    )


# --- teaching


def nbval(notebook, folder):
    """Run nbval on a notebook; returns how many cells it ran and how many of them failed."""
    nbformat.write(notebook, folder / "lesson.ipynb")
    (folder / "pytest.ini").write_text("[pytest]\n")  # the project's own settings are for its tests
    options = [
        "--nbval",
        "--nbval-current-env",
        "--nbval-cell-timeout",
        "120",
        "--nbval-sanitize-with",
        str(ROOT / "tests/sanitize.cfg"),
    ]
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            *options,
            "-p",
            "no:cacheprovider",
            "--junitxml",
            "report.xml",
            "lesson.ipynb",
        ],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        check=False,
    )
    (suite,) = xml.parse(folder / "report.xml").iter("testsuite")
    assert suite.get("errors") == suite.get("skipped") == "0"
    return int(suite.get("tests")), int(suite.get("failures"))


@pytest.mark.slow
def test_the_teaching_notebook_prints_what_it_keeps(tmp_path):
    """And the check is none that would pass whatever it printed: a copy with every kept number
    changed fails at every kept cell.
    """
    notebook = nbformat.read(NOTEBOOKS / "muscle_loss.ipynb", as_version=4)
    changed = copy.deepcopy(notebook)
    code = [cell for cell in changed.cells if cell.cell_type == "code"]
    checked = [cell for cell in code if set(cell.metadata.get("tags", [])) & CHECKED]
    assert checked
    for cell in checked:
        (output,) = cell.outputs
        assert output.output_type == "stream", "a checked cell prints rounded text"
        output.text = re.sub(
            r"\d(?=\D*$)", lambda digit: str((int(digit.group()) + 1) % 10), output.text
        )
        assert output.text != notebook.cells[changed.cells.index(cell)].outputs[0].text
    assert nbval(notebook, tmp_path) == (len(code), 0)
    assert nbval(changed, tmp_path) == (len(code), len(checked))


@pytest.mark.slow
def test_explore_executes_and_draws_its_federation(tmp_path, mini_world):
    environment = {"PYTHONPATH": str(ROOT), "FEDMUSCLE_RUNS": str(tmp_path / "runs")}
    command = [
        sys.executable,
        "-m",
        "papermill",
        NOTEBOOKS / "explore.ipynb",
        tmp_path / "out.ipynb",
        "--no-progress-bar",
    ]
    unwanted = {"MPLBACKEND", "JPY_SESSION_NAME"}
    inherited = {name: value for name, value in os.environ.items() if name not in unwanted}
    subprocess.run(command, cwd=ROOT, env=inherited | environment, check=True)
    (cell,) = [
        one
        for one in nbformat.read(tmp_path / "out.ipynb", as_version=4).cells
        if one.id == "explore"
    ]
    assert not [output for output in cell.outputs if output.get("name") == "stderr"]
    assert "image/png" in cell.outputs[-1].data
    assert "Δ over local training" in cell.outputs[0].text
