"""The grid and the command line: what is refused before anything runs, and what becomes of a notebook that fails."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import nbformat
import pytest
from processes import alive, eventually

from fedmuscle_lib import __main__ as command_line
from fedmuscle_lib import experiment, reproduce

ROOT = Path(__file__).parents[1]
PARAMETERS = """profile: str = "mini"  # which data
seeds: list = [0]  # of the runs
output: str = ""  # where to
overrides: dict = {}  # settings"""


def notebook(folder, name, *sources, parameters=PARAMETERS):
    """A notebook of a title, a parameters cell and a cell for each source."""
    cells = [nbformat.v4.new_markdown_cell(f"# {name.title()}\n\nIt claims <nothing>.", id="claim")]
    cells.append(nbformat.v4.new_code_cell(parameters, id="parameters", metadata={"tags": ["parameters"]}))
    cells += [nbformat.v4.new_code_cell(source, id=f"cell-{k}") for k, source in enumerate(sources)]
    path = folder / f"{name}.ipynb"
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), path)
    return path


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "notebooks").mkdir()
    return tmp_path / "notebooks"


# --- refused before anything runs --------------------------------------------------------------------------------------------


def planned(paths, **own):
    return reproduce.plan(paths, {"profile": "mini", "seeds": [0], "output": "figures"}, own)


def test_each_notebook_gets_what_it_declares(folder):
    table = notebook(folder, "table", parameters=PARAMETERS + "\nlabel: str = ''  # of a figure")
    lesson = notebook(folder, "lesson", parameters="angle: float = 1.0  # degrees")
    given = planned([table, lesson], angle=2, label="x", rounds=3, data_dir="here")
    assert given[lesson] == {"angle": 2}
    assert given[table] == {
        "profile": "mini",
        "seeds": [0],
        "output": "figures",
        "label": "x",
        "overrides": {"rounds": 3, "data_dir": str(Path("here").resolve())},
    }


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


def test_types_are_the_annotations(folder):
    path = notebook(folder, "lesson", parameters="angle: float = 1.0  # degrees\ncount: int = 1  # of them\nloud: bool = False  # or not")
    assert planned([path], angle=1, count=2, loud=True)
    for wrong in ({"angle": "1"}, {"count": 1.5}, {"count": True}, {"loud": 1}):
        with pytest.raises(ValueError, match="is a"):
            planned([path], **wrong)


def test_settings_need_a_notebook_that_takes_them(folder):
    with pytest.raises(ValueError, match="no chosen notebook takes settings"):
        planned([notebook(folder, "lesson", parameters="angle: float = 1.0  # degrees")], rounds=2)


def test_unknown_notebooks_are_refused(folder):
    notebook(folder, "table7")
    with pytest.raises(ValueError, match="no notebook 'tabel7'; did you mean 'table7'"):
        reproduce.select(["tabel7"], folder)
    assert [path.stem for path in reproduce.select(["table7.ipynb", "table7"], folder)] == ["table7"]


# --- failures ----------------------------------------------------------------------------------------------------------------


def test_failures_are_reported_and_others_go_on(folder, tmp_path, monkeypatch, capsys):
    good = "from pathlib import Path\nPath(output, profile, 'good', 'table.txt').write_text(str(seeds))\nprint('first', 'line')"
    notebook(folder, "good", good)
    notebook(folder, "bad", "x = 1", "# about to fail\nraise ValueError('no luck <here>')")
    notebook(folder, "killed", "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
    target = tmp_path / "figures"
    monkeypatch.setattr(command_line, "reproduce", partial(reproduce.reproduce, folder=folder))
    assert command_line.main(["reproduce", "--seeds", "3,4", "--jobs", "3", "--output", str(target)]) == 1

    out, err = capsys.readouterr()
    assert "good: first line" in err.splitlines()  # relayed as it is printed
    assert "bad: failed: cell 4 (raise ValueError('no luck <here>')): ValueError: no luck <here>" in out
    assert "killed: failed: cell 3 (import os, signal): DeadKernelError" in out
    assert "good: done" in out

    entries = target / "mini"
    assert (entries / "good/table.txt").read_text() == "[3, 4]"
    assert sorted(path.name for path in (entries / "good").iterdir()) == ["executed.html", "executed.ipynb", "result.json", "table.txt"]
    assert not (entries / "killed/executed.ipynb").exists()
    assert json.loads((entries / "bad/result.json").read_text())["failure"].endswith("ValueError: no luck <here>")
    assert str(tmp_path) not in (entries / "good/executed.ipynb").read_text()  # papermill writes the paths it is given

    page = (entries / "index.html").read_text()
    assert page.count('class="failed">failed') == 2
    assert "no luck &lt;here&gt;" in page
    assert 'href="good/executed.ipynb"' in page
    (entries / "index.html").unlink()
    assert reproduce.index(entries).read_text() == page  # a function of what lies there


LAUNCH = """
import sys
from pathlib import Path
from fedmuscle_lib import __main__ as command_line, reproduce
from functools import partial
command_line.reproduce = partial(reproduce.reproduce, folder=Path(sys.argv[1]))
sys.exit(command_line.main(["reproduce", "--output", sys.argv[2]]))
"""


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGKILL])
def test_no_kernel_outlives_the_grid(folder, tmp_path, sign):
    pid_file = tmp_path / "pid"
    notebook(folder, "endless", f"import os, time\nopen({str(pid_file)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    parent = subprocess.Popen([sys.executable, "-c", LAUNCH, folder, tmp_path / "figures"], env=environment, stderr=subprocess.PIPE)
    try:
        assert eventually(lambda: pid_file.exists() and pid_file.read_text())
        parent.send_signal(sign)
        assert parent.wait(60) == (130 if sign == signal.SIGINT else -signal.SIGKILL)
    finally:
        parent.kill()
    assert b"Traceback" not in parent.stderr.read()
    assert eventually(lambda: not alive(int(pid_file.read_text())))


@pytest.mark.parametrize(("count", "share"), [(1, "8"), (2, "4"), (3, "4")])
def test_notebooks_at_a_time_share_the_cores(folder, tmp_path, monkeypatch, count, share):
    def execute(path, folder, parameters, children):
        given.append(children._environment["OMP_NUM_THREADS"])
        return reproduce.Outcome(path.stem, parameters, 0.0, None)

    given = []
    for k in range(count):
        notebook(folder, f"table{k}")
    monkeypatch.setattr(reproduce, "_cores", lambda: 8)
    monkeypatch.setattr(reproduce, "_execute", execute)
    reproduce.reproduce(jobs=2, output=tmp_path / "figures", folder=folder)
    assert given == [share] * count


def test_a_folder_that_cannot_be_written_is_one_line(folder, tmp_path, monkeypatch, capsys):
    notebook(folder, "good", "x = 1")
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(command_line, "reproduce", partial(reproduce.reproduce, folder=folder))
    assert command_line.main(["reproduce", "--output", str(tmp_path / "file/figures")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ") and "Not a directory" in line


def test_a_full_disk_is_one_line(folder, tmp_path, monkeypatch, capsys):
    def full(*_):
        raise OSError(28, "No space left on device", "figures/mini/good/result.json")

    notebook(folder, "good", "x = 1")
    monkeypatch.setattr(reproduce, "_write", full)
    monkeypatch.setattr(command_line, "reproduce", partial(reproduce.reproduce, folder=folder))
    assert command_line.main(["reproduce", "--output", str(tmp_path / "figures")]) == 2
    assert capsys.readouterr().err == "error: figures/mini/good/result.json: No space left on device\n"


def test_what_a_kernel_says_of_its_own_end_is_no_progress(folder, tmp_path, caplog):
    """jupyter_client interrupts every kernel before it ends it; whether the kernel tells so is a matter of timing."""
    notebook(folder, "good", "import os; os.write(2, b'[IPKernelApp] ERROR | KeyboardInterrupt caught in kernel.\\nkept\\n')")
    with caplog.at_level("INFO", "fedmuscle"):
        (outcome,) = reproduce.reproduce(output=tmp_path / "figures", folder=folder)
    assert outcome.failure is None and "kept" in caplog.text and "KeyboardInterrupt" not in caplog.text


# --- the command line --------------------------------------------------------------------------------------------------------

README = """--aggregation_method fedmuscle --adapter_method lora --rank 16 --proj_dim 256 --tau 0.2 --tau_prime 0.15
--public_dataset_name pascal --num_MLC_clients 2 --num_IC100_clients 2 --num_IC10_clients 1 --num_epochs 150 --lr 0.001
--device cpu --seed 1"""


def settings_of(line, monkeypatch):
    """The settings that a command line asks for."""
    seen = []
    monkeypatch.setattr(command_line, "run", seen.append)
    monkeypatch.setattr(command_line, "stored", lambda settings: None)
    monkeypatch.setattr(command_line, "_print_run", lambda histories: None)
    assert command_line.main(["run", *line.split()]) == 0
    return seen[0]


def test_the_readmes_command_is_understood(monkeypatch):
    settings = settings_of(README, monkeypatch)
    assert (settings.algorithm, settings.public, settings.rounds, settings.seed) == ("fedmuscle", "voc", 150, 1)
    assert (settings.rank, settings.proj_dim, settings.tau, settings.tau_prime, settings.lr) == (16, 256, 0.2, 0.15, 0.001)
    assert settings.users == (1, 2, 4, 5, 6)


def test_the_readmes_second_command_is_understood(monkeypatch):
    """Setup2 without the SS users, whom it does not count."""
    line = "--public_dataset_name flicker_multi_modal --num_MLC_clients 3 --num_IC100_clients 2 --num_IC10_clients 1"
    settings = settings_of(f"{line} --num_yahoo_topic_classification_clients 2 --profile paper --device cpu", monkeypatch)
    assert (settings.public, settings.setup, settings.users) == ("flickr30k", "setup2", (1, 2, 3, 4, 5, 6, 9, 10))


def test_every_setting_is_an_option(monkeypatch):
    settings = settings_of("--local-epochs 2 --cl_epochs 3 --lora-targets q_proj,k_proj --users 1,2 --others 1", monkeypatch)
    assert (settings.local_epochs, settings.cl_epochs, settings.users, settings.lora_targets) == (2, 3, (1, 2), ("q_proj", "k_proj"))
    matrix = json.dumps([[0.3, 0.4], [0.4, 0.3]], separators=(",", ":"))
    assert settings_of(f"--users 1,2 --others 1 --tau {matrix} --tau_prime 0.2", monkeypatch).tau == ((0.3, 0.4), (0.4, 0.3))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("run --ronds 3", "--ronds"),
        ("run --algorithm fedmussel", "unknown algorithm 'fedmussel'"),
        ("run --rounds many", "rounds: Input should be a valid integer"),
        ("run --tau [[1", "tau: '[[1' is not JSON"),
        ("run --adapter_method prefix", "only lora is known"),
        ("run --num_MLC_clients 9", "there are 3 users with MLC"),
        ("run --device quantum", "device: 'quantum' can't be used here"),
        ("run --data_dir nowhere --rounds 1", "nowhere/MLC_setup/train/client_0.json: no such file"),
        ("reproduce table99", "no notebook 'table99'"),
        ("reproduce --seeds 1,x", "seeds: whole numbers"),
        ("reproduce -p rounds", "-p takes NAME=VALUE"),
        ("bench nothing", "no benchmark 'nothing'; known: loss"),
        ("rnu", "Did you mean 'run'"),
    ],
)
def test_a_mistake_is_one_line(line, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(experiment, "RUNS", tmp_path / "runs")
    assert command_line.main(line.split()) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("error: ") and message in last
    assert command_line.main([*line.split(), "--traceback"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_run_prints_users_and_delta(mini_world, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(experiment, "RUNS", tmp_path / "runs")
    line = f"run --users 5,6 --others 1 --rounds 1 --public-size 32 --data-dir {mini_world} --models-path {mini_world / 'models'}".split()
    assert command_line.main(line) == 0
    assert "Delta: local training has not been run" in capsys.readouterr().out
    assert command_line.main([*line, "--with-local"]) == 0
    out, err = capsys.readouterr()
    assert "Delta after alignment: " in out and "Delta after local: " in out
    assert "MB up" in out
    header, _, sixth = (line.split() for line in out.splitlines()[:3])
    assert header[-2:] == ["value", "trivial"]
    assert sixth[1:3] == ["ViT-Tiny", "IC10"] and sixth[-1] == "10.0"  # of ten classes, one is right everywhere
    assert "round 1/1" in err  # of local training alone: the other run was there
    assert not logging.getLogger("fedmuscle").handlers


def test_algorithms_are_listed(capsys):
    assert command_line.main(["algorithms"]) == 0
    assert "fedmuscle     FedMuscle                     the paper" in capsys.readouterr().out
