"""Notebooks: thin, stripped and whole; the teaching ones print what they say, the tables write what the runs measured."""

from __future__ import annotations

import ast
import copy
import json
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as xml
from pathlib import Path

import nbformat
import pandas as pd
import pytest
from staged import NOTEBOOKS, as_committed, checked_out, place

from fedmuscle_lib import Settings, Store, bridge, fedloge, report
from fedmuscle_lib.cli.notebook import SKELETON, lay_down
from fedmuscle_lib.reproduce import declared_parameters, reproduce, select
from fedmuscle_lib.reproduce.needs import asked_for
from fedmuscle_lib.runs import stored
from fedmuscle_lib.runs.address import address_of

ROOT = Path(__file__).parents[1]
PATHS = [*sorted(NOTEBOOKS.glob("*.ipynb")), SKELETON]
TEACHING = [NOTEBOOKS / "01_muscle_loss.ipynb"]
TABLES = [*(path for path in select(None, NOTEBOOKS) if path not in TEACHING), SKELETON]
CHECKED = {"nbval-check-output", "keep_output"}  # compared by nbval, kept by nbstripout

every_notebook = pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
every_table = pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)


def code_cells(path):
    return [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]


def tags(cell):
    return set(cell.metadata.get("tags", []))


# --- as files ----------------------------------------------------------------------------------------------------------------


@as_committed
@every_notebook
def test_nothing_of_an_execution_is_left(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert set(notebook.metadata) - {"fedmuscle"} == {"kernelspec", "language_info"}
    assert notebook.metadata.kernelspec.name == "python3"
    for cell in code_cells(path):
        if tags(cell) & CHECKED:
            assert tags(cell) >= CHECKED
            assert cell.outputs and cell.execution_count, f"{cell.id}: nbval passes a cell that was not run, whatever it prints"
        else:
            assert not cell.outputs and cell.execution_count is None, cell.id
        assert set(cell.metadata) <= {"tags"}


@every_notebook
def test_cells_have_names(path):
    names = [cell.id for cell in nbformat.read(path, as_version=4).cells]
    assert len(set(names)) == len(names)
    for name in names:
        assert re.fullmatch(r"[a-z]+[0-9]?(-[a-z]+)*", name), f"{name}: a name, not a random id"


@every_notebook
def test_the_first_code_cell_is_the_only_parameters_cell(path):
    first, *others = code_cells(path)
    assert "parameters" in tags(first) and not any("parameters" in tags(cell) for cell in others)
    lines = first.source.splitlines()
    for statement in ast.parse(first.source).body:
        assert isinstance(statement, ast.AnnAssign), "name: type = literal"
        ast.literal_eval(statement.value)
        assert "  # " in lines[statement.lineno - 1], f"{statement.target.id} says what it is"
    assert set(declared_parameters(path).values()) <= {"str", "int", "float", "bool", "list", "dict"}


@every_notebook
def test_no_path_of_a_machine(path):
    for cell in nbformat.read(path, as_version=4).cells:
        text = cell.source + str(cell.get("outputs", ""))
        assert not re.search(r"""["'\s(](/(home|root|tmp|work|usr|Users|mnt)/|~/|[A-Z]:\\)""", text), cell.id


@every_table
def test_tables_are_thin(path):
    cells = [cell.source for cell in code_cells(path)]
    source = "\n".join(cells)
    assert len(source.splitlines()) < 80
    assert {"profile", "seeds", "output", "overrides"} <= set(declared_parameters(path))
    assert not list(misplaced(cells)), "what computes belongs to the library"
    assert "backward" not in source and "torch" not in source


def misplaced(cells):
    """What the code cells define that does not serve one figure: classes, and functions of more than 12 lines or called in another number
    of cells than one."""
    trees = [ast.parse(cell) for cell in cells]
    calls = [{node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)} for tree in trees]
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                yield node.name
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                long = node.end_lineno - node.lineno + 1 > 12
                if long or sum(node.name in called for called in calls) != 1:
                    yield node.name


@pytest.mark.parametrize(
    ("cells", "found"),
    [
        (["def bars(rows):\n    return rows\nbars(1)"], []),
        (["def bars(rows):\n    return rows", "bars(1)", "x = 2"], []),
        (["def bars(rows):\n    return rows", "bars(1)", "bars(2)"], ["bars"]),
        (["def bars(rows):\n    return rows"], ["bars"]),
        (["def bars(rows):\n" + "    rows += 1\n" * 12 + "bars(1)"], ["bars"]),
        (["class Bars:\n    pass"], ["Bars"]),
    ],
)
def test_a_helper_serves_one_figure(cells, found):
    assert list(misplaced(cells)) == found


@every_notebook
def test_parameters_that_papermill_hands_over_as_text_are_read(path):
    """``papermill -p`` can't say that a value is a list or a dict."""
    first, *others = code_cells(path)
    for name, kind in declared_parameters(path).items():
        if kind in ("list", "dict"):
            assert any(f'literal("{name}", {name}, {kind})' in cell.source for cell in others[:2]), name


@every_notebook
def test_it_begins_with_a_title_and_a_claim(path):
    first = nbformat.read(path, as_version=4).cells[0]
    assert first.cell_type == "markdown" and first.source.startswith("# ")
    assert len(first.source.splitlines()) > 2


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_links_lead_somewhere(path):
    text = "\n".join(cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "markdown")
    for link in re.findall(r"\]\(([^)#]+)", text):
        assert link.startswith("https://") or (place(path).parent / link).exists(), link


def test_the_first_notebook_leads_to_all_others():
    text = json.dumps(nbformat.read(NOTEBOOKS / "00_start_here.ipynb", as_version=4))
    others = {path.relative_to(NOTEBOOKS).as_posix() for path in [*NOTEBOOKS.glob("*.ipynb"), *NOTEBOOKS.glob("lessons/*.ipynb")]}
    assert others - set(re.findall(r"\]\(([^)#]+)", text)) == {"00_start_here.ipynb"}


def test_notebooks_pass_the_linter_and_the_formatter():
    """`ruff format notebooks/*.ipynb` mends them."""
    for command in (["check"], ["format", "--check"]):
        own = ["--config", ROOT / "pyproject.toml", "--no-cache", *NOTEBOOKS.rglob("*.ipynb")]
        checked = subprocess.run([sys.executable, "-m", "ruff", *command, *own], capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked.stdout


def test_what_a_reader_saves_is_not_looked_at(tmp_path, monkeypatch):
    """Of a clone the tests see what is staged: no outputs of the working copy, no notebook that git does not know."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:  # of a hook, which would name another clone
        monkeypatch.delenv(name)
    clone, target = tmp_path / "clone", tmp_path / "target"
    (clone / "notebooks/lessons").mkdir(parents=True)
    git = ["git", "-C", str(clone)]
    subprocess.run([*git, "init", "-q"], check=True)
    assert checked_out(clone, target) is None
    for name in ("a.ipynb", "lessons/b.ipynb"):
        (clone / "notebooks" / name).write_text("staged")
    subprocess.run([*git, "add", "notebooks"], check=True)
    for name in ("a.ipynb", "lessons/b.ipynb", "c.ipynb"):
        (clone / "notebooks" / name).write_text("saved later")
    folder = checked_out(clone, target)
    assert {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*.ipynb")} == {
        "a.ipynb": "staged",
        "lessons/b.ipynb": "staged",
    }


# --- executed ----------------------------------------------------------------------------------------------------------------


def nbval(notebook, folder):
    """Run nbval on a notebook; returns how many cells it ran and how many of them failed."""
    nbformat.write(notebook, folder / "lesson.ipynb")
    (folder / "pytest.ini").write_text("[pytest]\n")  # the project's own settings are for its tests
    options = ["--nbval", "--nbval-current-env", "--nbval-cell-timeout", "120", "--nbval-sanitize-with", str(ROOT / "tests/sanitize.cfg")]
    subprocess.run(
        [sys.executable, "-m", "pytest", *options, "-p", "no:cacheprovider", "--junitxml", "report.xml", "lesson.ipynb"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        check=False,
    )
    (suite,) = xml.parse(folder / "report.xml").iter("testsuite")
    assert suite.get("errors") == suite.get("skipped") == "0"
    return int(suite.get("tests")), int(suite.get("failures"))


@pytest.mark.parametrize("path", TEACHING, ids=lambda path: path.stem)
def test_teaching_notebooks_print_what_they_print(path, tmp_path):
    """And the check is none that would pass whatever they printed: a copy with every kept number changed fails at every kept cell."""
    notebook = nbformat.read(path, as_version=4)
    changed = copy.deepcopy(notebook)
    checked = [cell for cell in changed.cells if cell.cell_type == "code" and tags(cell) & CHECKED]
    assert checked
    for cell in checked:
        (output,) = cell.outputs
        assert output.output_type == "stream", "a checked cell prints rounded text"
        output.text = re.sub(r"\d(?=\D*$)", lambda digit: str((int(digit.group()) + 1) % 10), output.text)
        assert output.text != notebook.cells[changed.cells.index(cell)].outputs[0].text
    n_cells = len(code_cells(path))
    assert nbval(notebook, tmp_path) == (n_cells, 0)
    assert nbval(changed, tmp_path) == (n_cells, len(checked))


PAPERS = ["local", "fedmuscle", "sage", "fedhenn", "cofed", "feddf", "fedrcl", "simclr", "pseudo_labeling"]
ARMS = {
    "table1": [
        *(*PAPERS, "fedrcl, authors' values", "self", "head_only", "local, tuned", "probe"),
        *("shuffled", "own_teacher", "anchored", "feddf, tuned", "own_teacher, tuned"),
    ],
    "table7": ["local", "fedmuscle", "gramian", "pairwise", "local, tuned", "head_only", "self", "probe"],
    "controls": [
        *("local", "fedmuscle", "self", "shuffled", "frozen_peers", "head_only", "anchored"),
        *("fedmuscle, tuned", "anchored, tuned", "local, tuned", "probe"),
    ],
}
SETUP2_ARMS = {
    "table2": ["local", "fedmuscle", "self", "frozen_peers", "shuffled", "head_only", "anchored", "local, tuned", "probe"],
    "table9": ["local", "fedmuscle", "local, tuned", "head_only", "self", "probe", "fedmuscle, τ(SS, TC) = 100"],
}
TINY = {"users": [4, 5, 6], "others": 2, "rounds": 2, "local_epochs": 2, "public_size": 32, "evaluate_every": 1}
# a user of each kind: pictures, their pixels, texts
SETUP2_TINY = TINY | {"setup": "setup2", "users": [6, 7, 9], "rounds": 1, "local_epochs": 1, "train_samples": {"SS": 30}}


def executed(notebooks, overrides, folder, **parameters):
    """Notebooks executed at once into one store: the folder of their results, that of the runs, and a function from an arm to its run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDMUSCLE_RUNS", str(folder / "runs"))
        outcomes = reproduce(notebooks, output=folder / "results", folder=NOTEBOOKS, overrides=overrides | parameters)
    assert [outcome.failure for outcome in outcomes] == [None] * len(notebooks)

    def run_of(arm):
        own = {"algorithm": report.algorithm_of(arm), "public": "flickr30k" if "setup" in overrides else "voc"}
        if arm.endswith(", tuned"):
            own |= {"protocol": "tuned"}
        if arm.endswith("authors' values"):
            own |= {"options": {"fedrcl.weight": 1.0}}
        if "τ" in arm:
            own |= {"tau": {"default": 0.2, "SS-TC": 100}, "tau_prime": {"default": 0.15, "SS-TC": 100}}
        if arm == "probe" and "setup" in overrides:
            own |= {"users": [6, 9]}  # whom it serves
        return stored(Settings(**overrides | own), Store(folder / "runs"))

    return folder / "results/mini", folder / "runs", run_of


@pytest.fixture(scope="module")
def grid(mini_world, tmp_path_factory):
    """Setup1's tables for one public set, and the controls, with three users and two rounds."""
    where = {"data_dir": str(mini_world), "models_path": str(mini_world / "models")}
    return executed(list(ARMS), TINY | where, tmp_path_factory.mktemp("grid"), publics=["voc"])


@pytest.fixture(scope="module")
def setup2_grid(mini_world, tmp_path_factory):
    """Setup2's tables, with three users and one round."""
    where = {"data_dir": str(mini_world), "models_path": str(mini_world / "models")}
    return executed(list(SETUP2_ARMS), SETUP2_TINY | where, tmp_path_factory.mktemp("grid"))


def check_tables(grid, name, arms):
    """What the notebook wrote is what its runs measured; returns the table."""
    results, _, run_of = grid
    for phase, suffix in (("after_alignment", ""), ("after_local", "_after_local")):
        table = pd.read_csv(results / name / f"table{suffix}.csv")
        delta = pd.read_csv(results / name / f"delta{suffix}.csv")
        assert ",".join(table.columns) == "public,user,model,task,metric,algorithm,mean,std,n_seeds,paper_mean,paper_std"
        assert ",".join(delta.columns) == ",".join(report.DELTA_COLUMNS)
        assert list(dict.fromkeys(table.algorithm)) == arms
        assert list(delta.algorithm) == [arm for arm in arms if len(run_of(arm).final()) == len(run_of("local").final())]
        assert delta.paper_delta.isna().all()  # the paper's is over all of its users
        local = run_of("local").final(phase).value
        for arm in arms:
            measured = run_of(arm).final(phase).value
            assert table[table.algorithm == arm]["mean"].tolist() == pytest.approx(measured.tolist(), abs=1e-4)
            if arm in set(delta.algorithm):
                assert delta.set_index("algorithm").delta[arm] == pytest.approx(100 * (measured / local - 1).mean(), abs=1e-3)
    assert table.n_seeds.eq(1).all() and table["std"].isna().all()
    return table


@pytest.mark.parametrize(("name", "arms"), ARMS.items(), ids=ARMS)
def test_tables_hold_what_the_runs_measured(grid, name, arms):
    table = check_tables(grid, name, arms)
    assert table.query("algorithm == 'fedmuscle' and user == 4").paper_mean.item() == 36.67


@pytest.mark.parametrize(("name", "cells"), {"table2": [41.1, 45.95], "table9": [40.1, 44.2]}.items(), ids=SETUP2_ARMS)
def test_setup2s_tables_hold_what_the_runs_measured(setup2_grid, name, cells):
    table = check_tables(setup2_grid, name, SETUP2_ARMS[name])
    assert table.query("user == 9").paper_mean.dropna().tolist() == cells
    for file in (f"{name}.svg", "delta_by_task.csv", "over_local.csv"):
        assert (setup2_grid[0] / name / file).exists()


def test_table_9_compares_two_runs_of_one_algorithm(setup2_grid):
    results, runs, run_of = setup2_grid
    generation = 4
    assert len(list(runs.glob("*/run.zip"))) == len(set().union(*SETUP2_ARMS.values())) + generation
    difference = pd.read_csv(results / "table9/large_minus_usual.csv")
    large, usual, local = (run_of(arm).final().value for arm in (SETUP2_ARMS["table9"][-1], "fedmuscle", "local"))
    assert difference.difference.tolist() == pytest.approx((100 * (large - usual) / local).tolist(), abs=1e-3)
    assert difference.paper_difference.notna().all()
    cells = {cell.id: cell for cell in nbformat.read(results / "table9/executed.ipynb", as_version=4).cells}
    assert "4 of 4 gain; more than in Table 2 gain: DistilBERT-Base." in cells["papers"].outputs[-1].data["text/markdown"]


def test_who_generates_texts_has_a_table_of_its_own(setup2_grid):
    rows = pd.read_csv(setup2_grid[0] / "table2/generation.csv")
    assert rows.user.eq(11).all() and rows.metric.eq("Perplexity").all() and rows.paper_mean.isna().all()
    assert rows.algorithm.tolist() == ["local", "fedmuscle", "self", "local, tuned"]
    references = pd.read_csv(setup2_grid[0] / "table2/references.csv")
    assert references.query("reference == 'tfidf'").task.tolist() == ["TC"] and references.reference.value_counts()["trivial"] == 3


def test_notebooks_share_runs(grid):
    _, runs, _ = grid
    replies = {"factored", "dense"}  # the third is FedMuscle's own
    assert len(list(runs.glob("*/run.zip"))) == len(list(runs.iterdir())) == len(replies.union(*ARMS.values()))


@pytest.mark.parametrize("name", ARMS)
def test_a_notebook_asks_for_the_runs_that_it_computes(grid, overrides, name):
    """And what it asks for is known without executing it."""
    results, _, _ = grid
    asked = asked_for(NOTEBOOKS / f"{name}.ipynb", profile="mini", publics=["voc"], overrides=overrides)
    behind = {run["address"] for run in json.loads((results / name / "provenance.json").read_text())["runs"]}
    assert {str(address_of(settings)) for settings in asked} == behind


def test_figures_and_index(grid):
    results, _, _ = grid
    for name in ("table1/table1", "table1/agreement", "table7/figure2", "controls/controls"):
        assert (results / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (results / f"{name}.svg").read_text()
    page = (results / "index.html").read_text()
    texts = ("learning from peers, or only not forgetting", "Anchored FedMuscle (ours)", "public_size")
    for wanted in ("table7/figure2.svg", "controls/executed.html", *texts):
        assert wanted in page
    assert page.count('<td class="computed here">computed here</td>') == len(ARMS)
    minus_self = pd.read_csv(results / "controls/fedmuscle_minus_self.csv")
    assert minus_self.user.tolist() == [4, 5, 6]
    world = pd.read_csv(results / "controls/world.csv").set_index("of").value
    assert world.loc[["vit-base", "vit-small", "vit-tiny"]].between(3, 100).all()  # chance is 1


def test_reading_is_computed(grid):
    results, _, run_of = grid
    cells = {cell.id: cell for cell in nbformat.read(results / "controls/executed.ipynb", as_version=4).cells}
    text = cells["reading-computed"].outputs[-1].data["text/markdown"]
    above = (run_of("fedmuscle").final().value > run_of("self").final().value).sum()
    assert f"On its one seed FedMuscle is better than Self (no communication) for {above} of 3 users" in text


def test_table_1_measures_order_costs_and_what_self_does_not_explain(grid):
    results, _, run_of = grid
    ranks = pd.read_csv(results / "table1/rank_agreement.csv")
    assert ranks.n_algorithms.tolist() == [0]  # the paper's Delta is over six users
    costs = pd.read_csv(results / "table1/relative_costs.csv").set_index("algorithm")
    flops = {name: run_of(name).costs.flops.sum() for name in ARMS["table1"]}
    assert costs.flop_over_local.to_dict() == pytest.approx({name: value / flops["local"] for name, value in flops.items()}, abs=1e-4)
    assert costs.loc[["local", "fedrcl", "self"], "bytes_over_fedmuscle"].eq(0).all()
    over_self = pd.read_csv(results / "table1/delta_over_self.csv").set_index("algorithm")
    delta = pd.read_csv(results / "table1/delta.csv").set_index("algorithm").delta
    assert over_self.difference.to_dict() == pytest.approx((delta - delta["self"]).drop("self").to_dict(), abs=1e-3)


# --- executed: FedLoGe ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def long_tailed(mini_world, tmp_path_factory):
    """FedLoGe's notebooks with two methods, a round and two norms: the folder of their results, and the store."""
    folder = tmp_path_factory.mktemp("fedloge")
    options = {"fedloge.etf_steps": 20, "fedloge.norm": 1.0}
    own = {"rounds": 1, "local_epochs": 1, "data_dir": str(mini_world), "options": options}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDMUSCLE_RUNS", str(folder / "runs"))
        names = ["fedloge", "fedloge_realign"]
        outcomes = reproduce(
            names, output=folder / "results", folder=NOTEBOOKS, overrides=own | {"methods": ["fedloge", "fedavg"], "norms": [0.1, 1]}
        )
    assert [outcome.failure for outcome in outcomes] == [None] * len(names)
    run_of = {name: stored(fedloge.Settings(algorithm=name, **own), Store(folder / "runs")) for name in ("fedloge", "fedavg")}
    return folder / "results/mini", folder / "runs", run_of


def test_fedloges_table_holds_what_the_runs_measured(long_tailed):
    results, runs, run_of = long_tailed
    table = pd.read_csv(results / "fedloge/table.csv")
    assert ",".join(table.columns) == "algorithm,scope,head,masked,group,mean,std,n_seeds,ci_low,ci_high,authors_mean,authors_log"
    assert list(dict.fromkeys(table.algorithm)) == ["fedloge", "fedavg"]
    for name, history in run_of.items():
        own, measured = table[table.algorithm == name], history.final()
        assert (
            own[["scope", "head", "masked", "group"]].to_numpy().tolist()
            == measured[["scope", "head", "masked", "group"]].to_numpy().tolist()
        )
        assert own["mean"].tolist() == pytest.approx(measured.value.tolist(), abs=1e-4)
    assert table.query("algorithm == 'fedavg' and scope == 'global' and group == 'all'").authors_mean.item() == 71.3
    assert len(list(runs.glob("*/run.zip"))) == 3  # the notebooks share FedLoGe's, and a norm is its usual one


def test_fedloges_notebooks_leave_figures_and_a_place_on_the_index_page(long_tailed):
    results, _, _ = long_tailed
    for name in (
        "fedloge/global_accuracy",
        "fedloge/personal_accuracy",
        *(f"fedloge_realign/{one}" for one in ("realignment", "norms", "sse_c")),
    ):
        assert (results / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    page = (results / "index.html").read_text()
    for wanted in ("FedLoGe, local + realigned", "GM: tail", "etf_steps", "fedloge_realign/differences.csv"):
        assert wanted in page
    assert pd.read_csv(results / "fedloge_realign/norms.csv").groupby("norm")["head"].agg(list).to_dict() == {
        nu: ["sse_c", "shared", "realigned"] for nu in (0.1, 1)
    }


def test_the_verdict_on_realignment_is_computed(long_tailed):
    results, _, run_of = long_tailed
    cells = {cell.id: cell for cell in nbformat.read(results / "fedloge_realign/executed.ipynb", as_version=4).cells}
    text = cells["verdict"].outputs[-1].data["text/markdown"]
    tail = run_of["fedloge"].final().query("scope == 'global' and group == 'tail'").set_index("head").value
    assert "**undecided**" in text
    assert f"leaves the tail undecided ({tail.realigned - tail.shared:+.2f} points on one seed, without an interval)" in text


# --- executed: the bridge between the two ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bridged(mini_world, tmp_path_factory):
    """The bridge's notebook with two users and a round: the folder of its results, and the store."""
    folder = tmp_path_factory.mktemp("bridge")
    own = {"users": [5, 6], "others": 1, "rounds": 1, "local_epochs": 1, "public_size": 32}
    own |= {"data_dir": str(mini_world), "models_path": str(mini_world / "models"), "train_samples": {"IC10": 100, "IC100": 300}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDMUSCLE_RUNS", str(folder / "runs"))
        (outcome,) = reproduce(["bridge"], output=folder / "results", folder=NOTEBOOKS, overrides=own | {"imbalance": 0.1})
    assert outcome.failure is None
    settings = {name: bridge.Settings(algorithm=name, imbalance=0.1, **own) for name in ("local", "self", "fedmuscle")}
    return folder / "results/mini/bridge", {name: stored(s, Store(folder / "runs")).metrics for name, s in settings.items()}


def test_the_bridges_tables_hold_what_its_runs_measured(bridged):
    folder, measured = bridged
    table = pd.read_csv(folder / "table.csv")
    key = ["user", "head", "group"]
    for name, metrics in measured.items():
        own = table[table.algorithm == name].set_index(key)["mean"]
        assert own.to_dict() == pytest.approx(metrics.set_index(key).value.to_dict(), abs=1e-4)
    assert pd.read_csv(folder / "samples.csv").query("user == 6 and group == 'all'").samples.item() == 36  # 10 7 5 4 3 2 2 1 1 1
    rows = pd.read_csv(folder / "differences.csv").query("a == 'fedmuscle' and b == 'self' and a_head == 'linear' and group == 'tail'")
    tails = {name: m[(m["head"] == "linear") & (m.group == "tail")].value.mean() for name, m in measured.items()}
    assert rows.difference.item() == pytest.approx(tails["fedmuscle"] - tails["self"], abs=1e-4)


def test_the_bridges_notebook_leaves_a_figure_and_a_place_on_the_index_page(bridged):
    folder, _ = bridged
    assert (folder / "peers.png").read_bytes().startswith(b"\x89PNG") and "<svg" in (folder / "peers.svg").read_text()
    page = (folder.parent / "index.html").read_text()
    for wanted in ("does alignment help the tail?", "FedMuscle − Local training", "bridge/differences_by_user.csv"):
        assert wanted in page
    cells = {cell.id: cell for cell in nbformat.read(folder / "executed.ipynb", as_version=4).cells}
    assert cells["verdict"].outputs[-1].data["text/markdown"].count("on one seed, without an interval") == 14


# --- executed: where to start, and what to play with -------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("name", "cell"), [("00_start_here", "stored"), ("explore", "explore")])
def test_notebooks_without_results_of_their_own_execute(name, cell, tmp_path, mini_world):
    environment = {"PYTHONPATH": str(ROOT), "FEDMUSCLE_RUNS": str(tmp_path / "runs")}
    command = [sys.executable, "-m", "papermill", NOTEBOOKS / f"{name}.ipynb", tmp_path / "out.ipynb", "--no-progress-bar"]
    unwanted = {"MPLBACKEND", "JPY_SESSION_NAME"}
    inherited = {name: value for name, value in os.environ.items() if name not in unwanted}
    subprocess.run(command, cwd=ROOT, env=inherited | environment, check=True)
    (cell,) = [one for one in nbformat.read(tmp_path / "out.ipynb", as_version=4).cells if one.id == cell]
    assert not [output for output in cell.outputs if output.get("name") == "stderr"]
    shown = cell.outputs[-1].data
    if name == "explore":
        assert "image/png" in shown and "Δ over local training" in cell.outputs[0].text
    else:
        assert "| [table7](table7.ipynb) |" in shown["text/markdown"]


# --- the same runs again -----------------------------------------------------------------------------------------------------


@pytest.fixture
def overrides(mini_world):
    return TINY | {"data_dir": str(mini_world), "models_path": str(mini_world / "models")}


def test_papermill_alone_executes_a_notebook(grid, overrides, tmp_path):
    """It hands lists and dicts over as text."""
    _, runs, _ = grid
    parameters = {"seeds": "[0]", "publics": '["voc"]', "overrides": json.dumps(overrides), "output": str(tmp_path)}
    subprocess.run(
        [sys.executable, "-m", "papermill", NOTEBOOKS / "table7.ipynb", tmp_path / "out.ipynb", "--no-progress-bar"]
        + [word for name, value in parameters.items() for word in ("-p", name, value)],
        cwd=ROOT,
        env=os.environ | {"FEDMUSCLE_RUNS": str(runs), "FEDMUSCLE_COMPUTE": "0", "PYTHONPATH": str(ROOT)},
        check=True,
    )
    assert pd.read_csv(tmp_path / "mini/table7/table.csv").equals(pd.read_csv(grid[0] / "table7/table.csv"))


@pytest.mark.parametrize("known", [True, False])
def test_where_nothing_is_computed_a_notebook_is_whole_or_missing(grid, overrides, tmp_path, monkeypatch, known):
    results, runs, _ = grid
    monkeypatch.setenv("FEDMUSCLE_RUNS", str(runs if known else tmp_path / "runs"))
    on_setup1 = overrides | {"setup": "setup1"}  # the reference has another setup too
    (outcome,) = reproduce(["controls"], seeds=[0], output=tmp_path, folder=NOTEBOOKS, overrides=on_setup1, shipped_only=True)
    assert outcome.failure is None
    if known:
        assert outcome.missing is None
        assert (tmp_path / "mini/controls/table.csv").read_bytes() == (results / "controls/table.csv").read_bytes()
    else:
        assert outcome.missing.startswith("9 runs are not stored")
        assert not (tmp_path / "runs").exists()


def test_the_map_shares_its_first_place_with_the_controls(grid, overrides, tmp_path, monkeypatch):
    results, runs, run_of = grid
    shutil.copytree(runs, tmp_path / "runs")
    monkeypatch.setenv("FEDMUSCLE_RUNS", str(tmp_path / "runs"))
    places = {"as it is": {}, "narrow": {"head_hidden": 8}}
    (outcome,) = reproduce(["delta_map"], output=tmp_path, folder=NOTEBOOKS, overrides=overrides | {"places": places})
    assert outcome.failure is None
    own = ["local", "fedmuscle", "self", "anchored", "frozen_peers", "head_only"]
    map_arms = [*own, "local, tuned"]  # which has one recipe in all places of a setup
    assert len(list((tmp_path / "runs").glob("*/run.zip"))) == len(list(runs.glob("*/run.zip"))) + len(own)
    rows = pd.read_csv(tmp_path / "mini/delta_map/delta_map.csv")
    assert rows.algorithm.tolist() == map_arms * 2 and rows.place.unique().tolist() == list(places)
    first, controls = (
        pd.read_csv(folder / "delta.csv").set_index("algorithm").delta for folder in (tmp_path / "mini/delta_map", results / "controls")
    )
    assert first.to_dict() == controls[map_arms].to_dict() == rows[rows.place == "as it is"].set_index("algorithm").delta.to_dict()
    assert rows.forgotten[0] == first.head_only
    assert (tmp_path / "mini/delta_map/delta_map.svg").exists() and (tmp_path / "mini/delta_map/delta_map_after_local.csv").exists()


def test_the_skeleton_of_a_notebook_is_one_that_runs(grid, overrides, tmp_path, monkeypatch):
    _, runs, run_of = grid
    monkeypatch.setenv("FEDMUSCLE_RUNS", str(runs))
    folder = lay_down("peers", tmp_path).parent
    (outcome,) = reproduce(output=tmp_path, folder=folder, overrides=overrides | {"values": [1, 2]})
    assert outcome.failure is None
    delta = pd.read_csv(tmp_path / "mini/peers/delta.csv").set_index("algorithm").delta
    assert list(delta.index) == ["local", "local, tuned", "head_only", "self", "probe", "fedmuscle, others = 1", "fedmuscle, others = 2"]
    local, two = (run_of(name).final().value for name in ("local", "fedmuscle"))
    assert delta["fedmuscle, others = 2"] == pytest.approx(100 * (two / local - 1).mean(), abs=1e-3)
    assert (tmp_path / "mini/peers/peers.svg").exists()
