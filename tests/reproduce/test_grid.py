"""The grid: what is refused before anything runs, what becomes of a notebook that fails, and what
the index page says of it all.
"""

import json
import os
import re
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
from fedmuscle_lib.reproduce import (
    Outcome,
    children,
    grid,
    index,
    literal,
    pages,
    plan,
    reproduce,
    select,
)

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


# --- refused before anything runs


def planned(paths, **own):
    return plan(paths, {"profile": "mini", "seeds": [0], "output": "results"}, own)


def test_each_notebook_gets_what_it_declares(folder):
    table = notebook(folder, "table", parameters=PARAMETERS + "\nlabel: str = ''  # of a figure")
    lesson = notebook(folder, "lesson", parameters="angle: float = 1.0  # degrees")
    given = planned([table, lesson], angle=2, label="x", rounds=3, data_dir="here")
    assert given[lesson] == {"angle": 2}
    assert given[table] == {
        "profile": "mini",
        "seeds": [0],
        "output": "results",
        "label": "x",
        "overrides": {"rounds": 3, "data_dir": str(Path("here").resolve())},
    }


def test_parameters_come_in_the_notebooks_order_in_which_it_names_its_folder(folder):
    path = notebook(
        folder,
        "table",
        parameters=PARAMETERS + "\nlabel: str = ''  # of a figure\nsize: int = 1  # of it",
    )
    assert [*planned([path], size=2, label="x", rounds=3)[path]] == [
        "profile",
        "seeds",
        "output",
        "overrides",
        "label",
        "size",
    ]


def test_a_setup_goes_to_a_notebook_that_takes_one_and_into_the_settings_of_others(folder):
    takes = notebook(
        folder, "takes", parameters=PARAMETERS + "\nsetup: str = 'setup1'  # who the users are"
    )
    given = planned([takes, notebook(folder, "table")], setup="setup1_unequal", rounds=3)
    assert [(own["overrides"], own.get("setup")) for own in given.values()] == [
        ({"rounds": 3}, "setup1_unequal"),
        ({"rounds": 3, "setup": "setup1_unequal"}, None),
    ]
    with pytest.raises(ValueError, match="setup3"):
        planned([takes], setup="setup3")


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ({"sedes": [1]}, "no parameter or setting 'sedes'; did you mean 'seeds'"),
        ({"overrides": [1]}, r"overrides is a dict, not \[1\]"),
        ({"overrides": {"rouds": 2}}, "unknown setting 'rouds'; did you mean 'rounds'"),
        ({"rounds": "many"}, "rounds: Input should be a valid integer"),
        ({"seed": 1}, "seed is the notebook's choice"),
        ({"profile": "mini"}, "profile has an option of its own"),
    ],
)
def test_misspelt_and_mistyped_parameters_are_refused(folder, own, message):
    with pytest.raises(ValueError, match=message):
        planned([notebook(folder, "table")], **own)


def test_a_setting_that_the_notebook_decides_is_checked_too(folder):
    path = notebook(folder, "table", parameters=PARAMETERS + '\npublic: str = "voc"  # set')
    assert planned([path], public="coco")[path]["public"] == "coco"
    with pytest.raises(ValueError, match="unknown public set 'cocoo'; did you mean 'coco'"):
        planned([path], public="cocoo")


def test_types_are_the_annotations(folder):
    path = notebook(
        folder,
        "lesson",
        parameters=(
            "angle: float = 1.0  # degrees\ncount: int = 1  # of them\nloud: bool = False  # or not"
        ),
    )
    assert planned([path], angle=1, count=2, loud=True)
    for wrong in ({"angle": "1"}, {"count": 1.5}, {"count": True}, {"loud": 1}):
        with pytest.raises(ValueError, match="is a"):
            planned([path], **wrong)


def test_settings_need_a_notebook_that_takes_them(folder):
    with pytest.raises(ValueError, match="no chosen notebook takes settings"):
        planned([notebook(folder, "lesson", parameters="angle: float = 1.0  # degrees")], rounds=2)


def test_an_empty_list_is_refused_where_a_notebook_needs_one(folder):
    table = notebook(
        folder,
        "table",
        parameters=PARAMETERS
        + '\npublics: list = ["voc"]  # sets\nmarks: list = []  # in a figure',
    )
    with pytest.raises(ValueError, match="^table: publics is empty$"):
        planned([table], publics=[], marks=[])


def test_unknown_notebooks_are_refused(folder):
    notebook(folder, "table7")
    with pytest.raises(ValueError, match="no notebook 'tabel7'; did you mean 'table7'"):
        select(["tabel7"], folder)
    assert [path.stem for path in select(["table7.ipynb", "table7"], folder)] == ["table7"]


# --- failures


@pytest.mark.slow
def test_failures_are_reported_and_others_go_on(folder, tmp_path, monkeypatch, capsys):
    good = (
        "from pathlib import Path\nPath(output, profile, 'good',"
        " 'table.txt').write_text(str(seeds))\nprint('first', 'line')"
    )
    notebook(folder, "good", good, "from IPython.display import Markdown\nMarkdown('**No gain.**')")
    notebook(folder, "bad", "x = 1", "# about to fail\nraise ValueError('no luck <here>')")
    notebook(folder, "killed", "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
    target = tmp_path / "results"
    assert main(["reproduce", "--seeds", "3,4", "--jobs", "3", "--output", str(target)]) == 1

    out, err = capsys.readouterr()
    assert "good: first line" in err.splitlines()  # relayed as it is printed
    assert (
        "bad: failed: cell 4 (raise ValueError('no luck <here>')): ValueError: no luck <here>"
        in out
    )
    assert "killed: failed: cell 3 (import os, signal): DeadKernelError" in out
    assert "good: done" in out

    entries = target / "mini"
    assert (entries / "good/table.txt").read_text() == "[3, 4]"
    assert sorted(path.name for path in (entries / "good").iterdir()) == [
        "README.md",
        "executed.html",
        "executed.ipynb",
        "result.json",
        "table.txt",
    ]
    assert (
        entries / "good/README.md"
    ).read_text() == "# Good\n\nIt claims <nothing>.\n\n**No gain.**\n"
    assert not (entries / "killed/executed.ipynb").exists()
    assert json.loads((entries / "bad/result.json").read_text())["failure"].endswith(
        "ValueError: no luck <here>"
    )
    assert (
        str(tmp_path) not in (entries / "good/executed.ipynb").read_text()
    )  # papermill writes the paths it is given

    page = (entries / "index.html").read_text()
    assert page.count('class="failed">failed') == 2
    assert "no luck &lt;here&gt;" in page
    assert 'href="good/executed.ipynb"' in page
    (entries / "index.html").unlink()
    assert index(entries).read_text() == page  # a function of what lies there


LAUNCH = """
import sys
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from fedmuscle_lib.__main__ import main
from fedmuscle_lib.core.notebooks import FIGURES
from fedmuscle_lib.cli import reproduce as command
command.reproduce = partial(command.reproduce, folder=Path(sys.argv[1]))
sys.exit(main(["reproduce", "--output", *sys.argv[2:]]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGKILL])
def test_no_kernel_outlives_the_grid(folder, tmp_path, sign):
    pid_file = tmp_path / "pid"
    notebook(
        folder,
        "endless",
        f"import os, time\nopen({str(pid_file)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)",
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    parent = subprocess.Popen(
        [sys.executable, "-c", LAUNCH, folder, tmp_path / "results"],
        env=environment,
        stderr=subprocess.PIPE,
    )
    try:
        assert eventually(lambda: pid_file.exists() and pid_file.read_text())
        parent.send_signal(sign)
        assert parent.wait(60) == (130 if sign == signal.SIGINT else -signal.SIGKILL)
    finally:
        parent.kill()
    assert b"Traceback" not in parent.stderr.read()
    assert eventually(lambda: not alive(int(pid_file.read_text())))


@pytest.mark.slow
def test_an_interrupted_repetition_keeps_the_results_that_there_were(folder, tmp_path):
    """Of two notebooks the second is interrupted after it has overwritten its table; the page is
    that of what lies there.
    """
    again, there = tmp_path / "again", tmp_path / "there"
    write = (
        "from pathlib import Path\nPath(output, profile, {name!r},"
        " 'table.txt').write_text(str(seeds))"
    )
    notebook(folder, "first", write.format(name="first"))
    waits = (
        f"\nimport time\nif Path({str(again)!r}).exists():\n    Path({str(there)!r}).touch()\n   "
        " time.sleep(600)"
    )
    notebook(
        folder,
        "second",
        write.format(name="second")
        + "\nPath(output, profile, 'second', 'new.txt').touch()"
        + waits,
    )
    target = tmp_path / "results/mini"
    reproduce(output=target.parent, folder=folder, jobs=1, seeds=[3])
    kept = {path: path.read_bytes() for path in (target / "second").iterdir()}
    again.touch()
    command = [sys.executable, "-c", LAUNCH, folder, target.parent, "--jobs", "1", "--seeds", "4"]
    parent = subprocess.Popen(
        command, env=os.environ | {"PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE
    )
    try:
        assert eventually(there.exists)
        parent.send_signal(signal.SIGINT)
        assert parent.wait(60) == 130
    finally:
        parent.kill()
    assert b"Traceback" not in parent.stderr.read()
    assert {path: path.read_bytes() for path in (target / "second").iterdir()} == kept
    assert (target / "first/table.txt").read_text() == "[4]" and (
        target / "second/table.txt"
    ).read_text() == "[3]"
    page = (target / "index.html").read_text()
    assert "failed" not in re.findall(r'class="(\w+)">\1', page) and "[4]" in page and "[3]" in page
    assert index(target).read_text() == page


@pytest.mark.parametrize(("count", "share"), [(1, "8"), (2, "4"), (3, "4")])
def test_notebooks_at_a_time_share_the_cores(folder, tmp_path, monkeypatch, count, share):
    for k in range(count):
        notebook(folder, f"table{k}")
    monkeypatch.setattr(grid, "_cores", lambda: 8)
    given = environments(folder, tmp_path, monkeypatch, jobs=2)
    assert [environment["OMP_NUM_THREADS"] for environment in given] == [share] * count


def environments(folder, tmp_path, monkeypatch, **options):
    """The environments of the children that would execute the folder's notebooks."""

    def execute(path, folder, parameters, children):
        given.append(children.environment)
        return Outcome(path.stem, parameters, 0.0, "")

    given = []
    monkeypatch.setattr(children, "execute", execute)
    reproduce(output=tmp_path / "results", folder=folder, **options)
    return given


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {"FEDMUSCLE_SHIPPED": "0", "FEDMUSCLE_PROGRESS": "lines"}),
        ({"shipped_only": True}, {"FEDMUSCLE_SHIPPED": "1", "FEDMUSCLE_COMPUTE": "0"}),
        (
            {"scheduler": "tcp://there:8786"},
            {"FEDMUSCLE_SHIPPED": "0", "FEDMUSCLE_SCHEDULER": "tcp://there:8786"},
        ),
    ],
)
def test_children_know_where_results_may_come_from(
    folder, tmp_path, monkeypatch, options, expected
):
    notebook(folder, "table")
    for name in ("FEDMUSCLE_SHIPPED", "FEDMUSCLE_COMPUTE", "FEDMUSCLE_SCHEDULER"):
        monkeypatch.delenv(name, raising=False)
    (given,) = environments(folder, tmp_path, monkeypatch, **options)
    assert expected.items() <= given.items()
    assert ("FEDMUSCLE_COMPUTE" in given) == ("FEDMUSCLE_COMPUTE" in expected)


STORED_NOWHERE = """class NotStored(LookupError):
    pass
raise NotStored('2 runs are not stored')"""


def test_runs_that_are_not_stored_are_missing_and_no_failure(folder, tmp_path, capsys):
    notebook(folder, "bare", STORED_NOWHERE)
    target = tmp_path / "results"
    drawn_before = {
        "provenance.json": json.dumps(runs("shipped")),
        "README.md": "# Bare",
        "executed.html": "<h1>Bare</h1>",
    }
    (target / "mini/bare").mkdir(parents=True)
    for name, text in drawn_before.items():
        (target / "mini/bare" / name).write_text(text)
    assert main(["reproduce", "--shipped-only", "--output", str(target)]) == 0
    assert "bare: missing: 2 runs are not stored" in capsys.readouterr().out
    page = (target / "mini/index.html").read_text()
    assert '<td class="missing">missing</td>' in page and "<pre>2 runs are not stored</pre>" in page
    assert not (target / "mini/bare/executed.ipynb").exists()
    assert {
        name: (target / "mini/bare" / name).read_text() for name in drawn_before
    } == drawn_before


@pytest.mark.slow
def test_shipped_runs_are_shown_with_the_references_parameters(folder, tmp_path):
    notebook(folder, "table", "print('seeds', seeds, 'overrides', overrides)")
    reference = tmp_path / "figures/mini/table"
    reference.mkdir(parents=True)
    parameters = {"seeds": [0, 1], "overrides": {"rounds": 2}, "gone": 1}
    (reference / "provenance.json").write_text(
        json.dumps({"shared": {}, "arms": {}, "runs": [], "parameters": parameters})
    )

    def given(**options):
        (outcome,) = reproduce(
            output=tmp_path / "results", folder=folder, reference=tmp_path / "figures", **options
        )
        return {
            name: value
            for name, value in outcome.parameters.items()
            if name not in ("profile", "output")
        }

    assert given(shipped_only=True) == {"seeds": [0, 1], "overrides": {"rounds": 2}}
    assert given(shipped_only=True, seeds=[3]) == {"seeds": [3], "overrides": {"rounds": 2}}
    assert given() == {"seeds": [0]}


@pytest.mark.slow
def test_a_notebook_has_a_folder_for_each_setup(folder, tmp_path):
    write = (
        "from fedmuscle_lib import report\nprint(report.results_folder('table', profile, output,"
        " setup=setup))"
    )
    notebook(
        folder,
        "table",
        write,
        parameters=PARAMETERS + "\nsetup: str = 'setup1'  # who the users are",
    )
    for name, parameters in {
        "table": {},
        "table_setup1_unequal": {"setup": "setup1_unequal"},
        "table_of_others": {"seeds": [7]},
    }.items():
        (tmp_path / "figures/mini" / name).mkdir(parents=True)
        (tmp_path / "figures/mini" / name / "provenance.json").write_text(
            json.dumps({"shared": {}, "arms": {}, "runs": [], "parameters": parameters})
        )

    def made_by(**options):
        outcomes = reproduce(
            output=tmp_path / "results", folder=folder, reference=tmp_path / "figures", **options
        )
        return {outcome.notebook: outcome.parameters.get("setup") for outcome in outcomes}

    assert made_by(shipped_only=True) == {"table": None, "table_setup1_unequal": "setup1_unequal"}
    assert made_by(shipped_only=True, overrides={"setup": "setup1_unequal"}) == {
        "table_setup1_unequal": "setup1_unequal"
    }
    assert made_by(overrides={"setup": "setup2"}) == {"table_setup2": "setup2"}
    for name in (
        "table",
        "table_setup1_unequal",
        "table_setup2",
    ):  # where the notebook itself writes
        assert (
            str(Path("mini", name))
            in (tmp_path / "results/mini" / name / "executed.html").read_text()
        )


@pytest.mark.parametrize(
    ("options", "drawn"),
    [
        ({}, {"table": [0, 1], "table_setup2": [5]}),
        ({"seeds": [7]}, {"table": [7]}),
        ({"overrides": {"device": "cpu"}}, {"table": [0, 1]}),
        ({"overrides": {"setup": "setup2"}}, {"table_setup2": [5]}),
        ({"seeds": [7], "overrides": {"setup": "setup2"}}, {"table_setup2": [7]}),
    ],
)
def test_seeds_and_parameters_draw_the_one_folder_that_they_lead_to(
    folder, tmp_path, monkeypatch, options, drawn
):
    notebook(
        folder, "table", parameters=PARAMETERS + "\nsetup: str = 'setup1'  # who the users are"
    )
    for name, parameters in {
        "table": {"seeds": [0, 1]},
        "table_setup2": {"seeds": [5], "setup": "setup2"},
    }.items():
        (place := tmp_path / "figures/mini" / name).mkdir(parents=True)
        (place / "provenance.json").write_text(json.dumps({"parameters": parameters}))
    monkeypatch.setattr(
        children,
        "execute",
        lambda path, place, parameters, _: Outcome(place.name, parameters, 0.0, ""),
    )
    outcomes = reproduce(
        output=tmp_path / "results",
        folder=folder,
        reference=tmp_path / "figures",
        shipped_only=True,
        **options,
    )
    assert {outcome.notebook: outcome.parameters["seeds"] for outcome in outcomes} == drawn


# --- the index page

EARLY, LATE = "2026-11-20T14:23:29+00:00", "2026-11-21T09:05:00+00:00"


def entry(tmp_path, provenance=None, result=None):
    (tmp_path / "table").mkdir()
    for name, content in {"provenance": provenance, "result": result}.items():
        if content is not None:
            (tmp_path / f"table/{name}.json").write_text(json.dumps(content))
    return tmp_path / "table"


def runs(*origins):
    """A provenance's runs of one arm."""
    named = [
        {"origin": origin, "finished": finished}
        for origin, finished in zip(origins, (EARLY, LATE, EARLY), strict=False)
    ]
    return {
        "shared": {"address": "01"},
        "arms": {"local": {}},
        "runs": [{"arm": "local"} | run for run in named],
    }


def test_an_ablation_whose_arms_have_several_deltas_is_readable(tmp_path):
    reference = FIGURES / "mini" / "table5"
    shutil.copytree(reference, tmp_path / "table5")
    (tmp_path / "table5" / "result.json").unlink(missing_ok=True)
    page = index(tmp_path).read_text()
    assert "unreadable:" not in page and "<h3>Overview</h3>" in page


def test_what_a_section_says_of_its_numbers_is_their_provenances(tmp_path):
    """Also where somebody drew them again after the grid did, with other seeds."""
    facts = runs("computed") | {"command": "reproduce table --seeds 0"}
    facts["shared"]["settings"] = {"seed": 0}
    folder = entry(
        tmp_path, facts, {"finished": LATE, "seconds": 3.0, "parameters": {"seeds": [0, 1, 2]}}
    )
    (folder / "executed.html").touch()
    page = index(tmp_path).read_text()
    assert "Made by <code>reproduce table --seeds 0</code>" in page
    assert "[0, 1, 2]" not in page and "executed.html" not in page and "3 s" not in page
    (folder / "result.json").write_text(
        json.dumps({"finished": LATE, "seconds": 3.0, "parameters": {"seeds": [0]}})
    )
    assert "executed.html" in (page := index(tmp_path).read_text()) and "<td>3 s</td>" in page


# --- the pages of one notebook


@pytest.fixture
def executed(tmp_path):
    """An executed notebook that shows a table and a figure, and prints progress."""
    (folder := tmp_path / "results/mini/table").mkdir(parents=True)
    image, frame = (
        {"image/png": "iVBORw0KGgo="},
        {
            "text/html": (
                "<div>\n<style scoped>a</style>\n<table>\n  <tr>\n  <td>1</td></tr>\n</table></div>"
            )
        },
    )
    outputs = [
        nbformat.v4.new_output("stream", text="1 of 2"),
        *(nbformat.v4.new_output("display_data", data) for data in (frame, image)),
    ]
    cells = [
        nbformat.v4.new_markdown_cell(
            "# Title\n\nSee [data](../docs/data.md#a), [here](#a), <!-- from a.csv: b -->1<!--"
            " /from --> of [it](https://a.b)."
        ),
        nbformat.v4.new_code_cell('plots.save(figure, folder, "my_figure")', outputs=outputs),
    ]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), folder / "executed.ipynb")
    pages.export(folder / "executed.ipynb", tmp_path / "notebooks")
    return folder


def test_the_page_in_markdown_has_what_is_read_and_links_that_hold(executed):
    assert (
        (executed / "README.md").read_text()
        == "# Title\n\nSee [data](../../../docs/data.md#a), [here](#a), 1 of [it](https://a.b).\n\n<table>\n  <tr><td>1</td></tr></table>\n\n![my figure](my_figure.svg)\n"
    )


def test_a_page_ends_with_the_command_and_the_time_of_its_runs(tmp_path):
    assert pages.origin(tmp_path) == ""
    runs = [
        {"arm": "local", "address": "a", "finished": "2026", "seconds": 90, "origin": "shipped"}
    ] * 2
    made_with = [{"torch": "2.13.0", "machine": "x86_64", "source": source} for source in "ab"]
    told = {
        "command": "python -m fedmuscle_lib reproduce table7",
        "made_with": made_with,
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


def test_the_page_in_html_asks_no_other_server(executed):
    page = (executed / "executed.html").read_text()
    assert "my_figure" in page and "1 of 2" in page
    assert (
        not re.findall(r"""(?:src|import|url)\s*[=(]\s*["']?https?://""", page)
        and "cdnjs" not in page
    )


# --- what it costs to import, and parameters that arrive as text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[0, 1]", [0, 1]),
        ("['voc']", ["voc"]),
        ('{"rounds": 2, "tau": {"default": 0.2}}', {"rounds": 2, "tau": {"default": 0.2}}),
    ],
)
def test_parameters_are_read_from_text(text, value):
    assert literal("p", text, type(value)) == literal("p", value, type(value)) == value


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("[0, 1", list),
        (3, list),
        ("3", list),
        ("{}", list),
        ("import os", dict),
        ("f()", list),
        ("{[]: 1}", list),
        ("-" * 100_000 + "1", list),
        ("(" * 10_000, list),
    ],
)
def test_a_parameter_that_cannot_be_read_is_named(value, kind):
    with pytest.raises(
        ValueError, match=f"^parameter seeds: expected a {kind.__name__} such as .*, got "
    ) as caught:
        literal("seeds", value, kind)
    assert len(str(caught.value)) < 140
