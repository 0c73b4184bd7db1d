"""The grid: what is refused before anything runs, what becomes of a notebook that fails, and what
the pages say of it all.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import nbformat
import pytest
from processes import alive, eventually

from fedmuscle_lib.__main__ import main
from fedmuscle_lib.core.notebooks import FIGURES
from fedmuscle_lib.reproduce import Outcome, grid, index, literal, pages, plan, reproduce, select

ROOT = Path(__file__).parents[2]
PARAMETERS = """profile: str = "mini"  # which data
seeds: list = [0]  # of the runs
output: str = ""  # where to
overrides: dict = {}  # settings"""


def notebook(folder, name, *sources, parameters=PARAMETERS):
    """A notebook of a title, a parameters cell and a cell for each source."""
    cells = [nbformat.v4.new_markdown_cell(f"# {name.title()}\n\nIt claims <nothing>.", id="claim")]
    cells.append(
        nbformat.v4.new_code_cell(parameters, id="parameters", metadata={"tags": ["parameters"]})
    )
    cells += [nbformat.v4.new_code_cell(source, id=f"cell-{k}") for k, source in enumerate(sources)]
    path = folder / f"{name}.ipynb"
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), path)
    return path


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder of notebooks, which the command line takes for the repository's."""
    (tmp_path / "notebooks").mkdir()
    monkeypatch.setattr(
        "fedmuscle_lib.cli.reproduce.reproduce", partial(reproduce, folder=tmp_path / "notebooks")
    )
    return tmp_path / "notebooks"


@pytest.fixture
def started(monkeypatch):
    """What would be executed, and in which environments, by the name of the folder of results."""
    found = {}

    def execute(path, own, given, environment):
        found[own.name] = given, environment
        return subprocess.Popen(["true"])

    monkeypatch.setattr(grid, "_started", execute)
    monkeypatch.setattr(grid, "_outcome", lambda code, own, given: Outcome(own.name, given, 0, ""))
    return found


def reference(tmp_path, name="table", **parameters):
    (place := tmp_path / "figures/mini" / name).mkdir(parents=True)
    facts = {"shared": {}, "arms": {}, "runs": [], "parameters": parameters}
    (place / "provenance.json").write_text(json.dumps(facts))


# --- refused before anything runs


def planned(paths, **own):
    return plan(paths, {"profile": "mini", "seeds": [0], "output": "results"}, own)


def test_each_notebook_gets_what_it_declares_in_its_own_order(folder, tmp_path):
    table = notebook(folder, "table", parameters=PARAMETERS + "\nsetup: str = 'setup1'\nx: int = 1")
    lesson = notebook(folder, "lesson", parameters="angle: float = 1.0  # degrees")
    given = planned(
        [table, lesson], angle=2, x=2, setup="setup1_unequal", rounds=3, data_dir=str(tmp_path)
    )
    assert given[lesson] == {"angle": 2}
    assert [*given[table].items()] == [
        ("profile", "mini"),
        ("seeds", [0]),
        ("output", "results"),
        ("overrides", {"rounds": 3, "data_dir": str(tmp_path)}),
        ("setup", "setup1_unequal"),
        ("x", 2),
    ]


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ({"sedes": [1]}, "no parameter or setting 'sedes'; did you mean 'seeds'"),
        ({"overrides": [1]}, r"overrides is a dict, not \[1\]"),
        ({"overrides": {"rouds": 2}}, "no parameter or setting 'rouds'; did you mean 'rounds'"),
        ({"rounds": "many"}, "rounds: Input should be a valid integer"),
        ({"angle": "1"}, "angle is a float, not '1'"),
        ({"setup": "setup3"}, "setup3"),
        ({"seed": 1}, "seed is the notebook's choice"),
        ({"profile": "mini"}, "profile has an option of its own"),
        ({"data_dir": "/nonexistent"}, "data_dir: /nonexistent: no such folder"),
    ],
)
def test_what_cannot_run_is_refused(folder, own, message):
    with pytest.raises(ValueError, match=message):
        planned([notebook(folder, "table", parameters=PARAMETERS + "\nangle: float = 1.0")], **own)


def test_settings_need_a_notebook_that_takes_them(folder):
    with pytest.raises(ValueError, match="no parameter or setting 'rounds'"):
        planned([notebook(folder, "lesson", parameters="angle: float = 1.0  # degrees")], rounds=2)


def test_unknown_notebooks_are_refused(folder):
    notebook(folder, "table7")
    with pytest.raises(ValueError, match="no notebook 'tabel7'; did you mean 'table7'"):
        select(["tabel7"], folder)
    assert [path.stem for path in select(["table7.ipynb", "table7"], folder)] == ["table7"]


def test_a_file_anywhere_is_a_notebook_and_its_results_lie_below_the_current_folder(
    tmp_path, monkeypatch, started
):
    (tmp_path / "study").mkdir()
    notebook(tmp_path / "study", "depth")
    monkeypatch.chdir(tmp_path)
    reproduce(["study/depth.ipynb"], output=Path("out"), folder=tmp_path / "notebooks")
    assert started["depth"][0]["output"] == "../out" and (tmp_path / "out/mini/depth").is_dir()
    with pytest.raises(ValueError, match="no notebooks in .*notebooks; a file such as"):
        reproduce(["depth"], output=Path("out"), folder=tmp_path / "notebooks")


def test_a_folder_of_the_users_stops_it_before_it_starts(folder, tmp_path, started):
    notebook(folder, "table")
    (tmp_path / "results/mini/table").mkdir(parents=True)
    (mine := tmp_path / "results/mini/table/thesis.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="thesis.txt"):
        reproduce(output=tmp_path / "results", folder=folder)
    assert not started and mine.read_text() == "mine"


# --- what runs


def test_children_know_where_results_may_come_from(folder, tmp_path, monkeypatch, started):
    for name in ("table", "other"):
        notebook(folder, name)
    monkeypatch.setattr(grid, "_cores", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS")
    reproduce(output=tmp_path / "results", folder=folder)
    given, environment = started["table"]
    assert given["seeds"] == [0]
    assert environment["OMP_NUM_THREADS"] == "4" and environment["FEDMUSCLE_SHIPPED"] == "0"
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    reproduce(output=tmp_path / "results", folder=folder, shipped_only=True)
    given, environment = started["table"]
    assert "seeds" not in given and environment["FEDMUSCLE_COMPUTE"] == "0"
    assert environment["OMP_NUM_THREADS"] == "3"


def test_the_first_public_set_alone_is_run(folder, tmp_path, started):
    notebook(folder, "table", parameters=PARAMETERS + "\npublics: list = ['voc', 'coco']")
    reproduce(output=tmp_path / "results", folder=folder, first_public=True)
    ((given, _),) = started.values()
    assert given["publics"] == ["voc"]


@pytest.mark.parametrize(
    ("options", "drawn"),
    [
        ({}, {"table": [0, 1], "table_setup2": [5]}),
        ({"seeds": [7]}, {"table": [7]}),
        ({"overrides": {"device": "cpu"}}, {"table": [0, 1]}),
        ({"seeds": [7], "overrides": {"setup": "setup2"}}, {"table_setup2": [7]}),
    ],
)
def test_a_reference_is_drawn_with_its_parameters(folder, tmp_path, started, options, drawn):
    notebook(folder, "table", parameters=PARAMETERS + "\nsetup: str = 'setup1'")
    reference(tmp_path, seeds=[0, 1], gone=1)
    reference(tmp_path, "table_setup2", seeds=[5], setup="setup2")
    reference(tmp_path, "table_of_others", seeds=[7])
    reproduce(
        output=tmp_path / "results",
        folder=folder,
        reference=tmp_path / "figures",
        shipped_only=True,
        **options,
    )
    assert {name: given["seeds"] for name, (given, _) in started.items()} == drawn


@pytest.mark.slow
def test_failures_are_reported_and_others_go_on(folder, tmp_path, capfd):
    good = (
        "from pathlib import Path\nPath(output, profile, 'good',"
        " 'table.txt').write_text(str(seeds))\nprint('first', 'line')"
    )
    figure = """import matplotlib.pyplot as plt
from fedmuscle_lib import plots
figure, axes = plt.subplots()
plt.close(figure)
plots.save(figure, Path(output, profile, 'good'), 'my_figure')
figure"""
    link = "from IPython.display import Markdown\nMarkdown('**No gain.**')"
    notebook(folder, "good", good, link, figure)
    notebook(folder, "bad", "x = 1", "# about to fail\nraise ValueError('no luck <here>')")
    notebook(folder, "killed", "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
    notebook(folder, "bare", "class NotStored(LookupError): pass", "raise NotStored('2 runs')")
    entries = tmp_path / "results/mini"
    assert (
        main(["reproduce", "--seeds", "3,4", "--jobs", "4", "--output", str(entries.parent)]) == 1
    )

    out, err = capfd.readouterr()
    assert "good: first line" in err.splitlines()  # relayed as it is printed
    assert "bad: failed: cell 4: ValueError: no luck <here>" in out
    assert "killed: failed: DeadKernelError" in out
    assert "bare: missing: 2 runs" in out and "good: done" in out

    assert (entries / "good/table.txt").read_text() == "[3, 4]"
    assert {path.name for path in (entries / "good").iterdir()} == {
        "README.md",
        "executed.html",
        "executed.ipynb",
        "my_figure.svg",
        "result.json",
        "table.txt",
    }
    assert (entries / "good/README.md").read_text() == (
        "# Good\n\nIt claims <nothing>.\n\n**No gain.**\n\n![my figure](my_figure.svg)\n"
    )
    page = (entries / "good/executed.html").read_text()
    assert "cdnjs" not in page and "data:image/png" in page, "it asks no other server"
    # papermill writes the paths it is given
    assert str(tmp_path) not in (entries / "good/executed.ipynb").read_text()

    page = (entries / "index.html").read_text()
    assert page.count('<td class="failure">') == 2 and page.count('<td class="missing">') == 1
    assert "no luck &lt;here&gt;" in page and 'href="good/executed.ipynb"' in page
    (entries / "index.html").unlink()
    assert index(entries).read_text() == page  # a function of what lies there


LAUNCH = """
import sys
from functools import partial
from pathlib import Path
from fedmuscle_lib.__main__ import main
from fedmuscle_lib.cli import reproduce as command
command.reproduce = partial(command.reproduce, folder=Path(sys.argv[1]))
sys.exit(main(["reproduce", "--output", *sys.argv[2:]]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGKILL])
def test_no_kernel_outlives_the_grid_and_its_pages_stay(folder, tmp_path, sign):
    pid_file, again = tmp_path / "pid", tmp_path / "again"
    wait = (
        "import os, time\nfrom pathlib import Path\nif Path({!r}).exists():\n"
        "    open({!r}, 'w').write(str(os.getpid()))\n    time.sleep(600)"
    )
    notebook(folder, "endless", wait.format(str(again), str(pid_file)))
    reproduce(output=tmp_path / "results", folder=folder)
    page = (tmp_path / "results/mini/endless/executed.html").read_bytes()
    again.touch()
    parent = subprocess.Popen(
        [sys.executable, "-c", LAUNCH, folder, tmp_path / "results"],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
    )
    try:
        assert eventually(lambda: pid_file.exists() and pid_file.read_text(), 300)
        parent.send_signal(sign)
        assert parent.wait(300) == (130 if sign == signal.SIGINT else -signal.SIGKILL)
    finally:
        parent.kill()
    said = parent.stderr.read()
    assert b"Traceback" not in said
    assert (b"the same command resumes" in said) == (sign == signal.SIGINT)
    assert eventually(lambda: not alive(int(pid_file.read_text())))
    assert (tmp_path / "results/mini/endless/executed.html").read_bytes() == page
    assert "failure" not in index(tmp_path / "results/mini").read_text().partition("</style>")[2]


# --- pages


def test_the_index_has_the_papers_order_and_says_what_made_each(tmp_path):
    names = ("figure5", "controls", "table5", "table1")
    for name in names:
        shutil.copytree(FIGURES / "mini" / name, tmp_path / "mini" / name)
    (tmp_path / "mini/table1/result.json").write_text('{"missing": "a run"}')
    page = index(tmp_path / "mini").read_text()
    places = [page.index(f'<section id="{name}">') for name in sorted(names, key=names.index)]
    assert sorted(places) == [places[k] for k in (3, 2, 0, 1)]
    assert page.count('<td class="missing">') == 1 and "<pre>a run</pre>" in page
    assert "of them shipped" in page and "python -m fedmuscle_lib reproduce figure5" in page


def test_a_page_ends_with_the_command_and_the_time_of_its_runs(tmp_path):
    assert pages.origin(tmp_path) == ""
    runs = [
        {"arm": "local", "address": "a", "finished": "2026", "seconds": 90, "origin": "shipped"}
    ] * 2
    told = {
        "command": "python -m fedmuscle_lib reproduce table7",
        "made_with": [{"torch": "2.13.0", "machine": "x86_64", "source": one} for one in "ab"],
        "shared": {},
        "arms": {"local": {}},
        "runs": runs,
    }
    (tmp_path / "provenance.json").write_text(json.dumps(told))
    assert (
        pages.origin(tmp_path)
        == "\nThe 2 runs behind this page, 2 of them shipped, took 3 minutes one after another,"
        " with torch 2.13.0 on x86_64:\n\n```\npython -m fedmuscle_lib reproduce table7\n```\n"
    )


# --- parameters that arrive as text


@pytest.mark.parametrize("text", ["[0, 1]", "['voc']", '{"rounds": 2, "tau": {"default": 0.2}}'])
def test_parameters_are_read_from_text(text):
    value = json.loads(text.replace("'", '"'))
    assert literal("p", text, type(value)) == literal("p", value, type(value)) == value


@pytest.mark.parametrize(
    ("value", "kind"), [("[0, 1", list), (3, list), ("{}", list), ("f()", list)]
)
def test_a_parameter_that_cannot_be_read_is_named(value, kind):
    with pytest.raises(ValueError, match="^parameter seeds: expected a list, got "):
        literal("seeds", value, kind)
