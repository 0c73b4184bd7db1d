"""The command line: what it understands, what it refuses in one line, and what becomes of stored
runs.
"""

import json
import logging
import re
import shutil
from dataclasses import replace
from importlib import import_module

import nbformat
import pandas as pd
import pytest
from histories import history

from fedmuscle_lib import Settings, Store, load_user, run
from fedmuscle_lib.__main__ import main
from fedmuscle_lib.cli import run as run_command
from fedmuscle_lib.cli.runs import described
from fedmuscle_lib.cli.verify import verify
from fedmuscle_lib.core.errors import Diverged
from fedmuscle_lib.core.files import ROOT
from fedmuscle_lib.runs import Record
from fedmuscle_lib.runs.address import address_of
from fedmuscle_lib.runs.store import write_archive

# --- run: options

README = """--aggregation_method fedmuscle --adapter_method lora --rank 16 --proj_dim 256 --tau 0.2 --tau_prime 0.15
--public_dataset_name pascal --num_MLC_clients 2 --num_IC100_clients 2 --num_IC10_clients 1 --num_epochs 150 --lr 0.001
--device cpu --seed 1"""


def settings_of(line, monkeypatch):
    """The settings that a command line asks for."""
    seen = []
    monkeypatch.setattr(run_command, "run", lambda settings, **options: seen.append(settings))
    monkeypatch.setattr(run_command, "stored", lambda settings: None)
    monkeypatch.setattr(run_command, "show", lambda histories: None)
    assert main(["run", *(line.split() if isinstance(line, str) else line)]) == 0
    return seen[0]


def test_the_readmes_commands_are_understood(monkeypatch):
    s = settings_of(README, monkeypatch)
    assert (s.algorithm, s.public, s.rounds, s.seed) == ("fedmuscle", "voc", 150, 1)
    assert (s.rank, s.proj_dim, s.tau, s.tau_prime, s.lr) == (16, 256, 0.2, 0.15, 0.001)
    assert s.users == (1, 2, 4, 5, 6)
    line = (
        "--public_dataset_name flicker_multi_modal --num_MLC_clients 3 --num_IC100_clients 2"
        " --num_IC10_clients 1 --num_yahoo_topic_classification_clients 2 --profile paper"
    )
    s = settings_of(f"{line} --device cpu", monkeypatch)
    assert (s.public, s.setup) == ("flickr30k", "setup2")
    assert s.users == (1, 2, 3, 4, 5, 6, 9, 10)  # without the SS users, whom it does not count


def test_options_have_one_spelling_and_dashes_may_be_underscores(monkeypatch):
    s = settings_of(
        "--local-epochs 2 --cl_epochs 3 --lora_blocks last --users 1,2 --others 1"
        " --tau [[0.3,0.4],[0.4,0.3]] --tau_prime 0.2",
        monkeypatch,
    )
    assert (s.local_epochs, s.cl_epochs, s.users, s.lora_blocks) == (2, 3, (1, 2), "last")
    assert s.tau == ((0.3, 0.4), (0.4, 0.3))


@pytest.mark.parametrize(
    "given",
    [
        ["--users", "1,2", "--others", "1", "--tau", "[[0.3,0.4],[0.4,0.3]]", "--data_dir", "/x"],
        ["--own", '{"4": {"folder": "mine", "classes": 7}}', "--options", '{"gramian.tau": 0.3}'],
        ["--public_dataset_name", "flicker_multi_modal", "--profile", "small"],
    ],
)
def test_a_run_from_its_printed_settings_is_the_same(given, tmp_path, monkeypatch, capsys):
    direct = settings_of(given, monkeypatch)
    capsys.readouterr()
    assert main(["run", *given, "--print-config"]) == 0
    printed = tmp_path / "run.toml"
    printed.write_text(capsys.readouterr().out, encoding="utf8")
    assert settings_of(["--config", str(printed)], monkeypatch) == direct
    assert settings_of(["--config", str(printed), "--seed", "3"], monkeypatch).seed == 3
    more = ["--config", str(printed), "--options", '{"fedhenn.eta": 0.7}']
    assert settings_of(more, monkeypatch).options == direct.options | {"fedhenn.eta": 0.7}


@pytest.mark.parametrize("name", ["COCO", "CIFAR100", "CIFAR10", "VOC", "Pascal", "coco"])
def test_the_readmes_public_sets_are_known_in_any_case(name, monkeypatch):
    public = settings_of(f"--public_dataset_name {name}", monkeypatch).public
    assert public == {"pascal": "voc"}.get(name.lower(), name.lower())


def test_what_the_algorithm_does_not_read_is_told(monkeypatch, capsys):
    given = '--tau 0.3 --seed 1 --options {"simclr.tau":0.1,"gramian.tau":0.3}'
    settings_of(f"--algorithm gramian {given}", monkeypatch)
    assert "gramian does not read tau, simclr.tau\n" in capsys.readouterr().out
    settings_of("--algorithm gramian --seed 1", monkeypatch)  # nothing of the profile's is told
    assert "does not read" not in capsys.readouterr().out


def test_help_groups_the_options_and_shows_choices_ranges_and_the_profiles_numbers(
    capsys, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["run", "--help"]) == 0
    page = capsys.readouterr().out
    panels = dict(re.findall(r"╭─ ([^─]+?) ─+╮(.*?)╰", page, flags=re.DOTALL))
    assert list(panels)[1:] == [
        "Federation",
        "Training",
        "Loss",
        "Model",
        "Data",
        "Machine",
        "Flags of the original code",
        "A file of settings",
    ]
    assert all(
        f"│ --{name.replace('_', '-')} " in panels[Settings.about(name)["group"]]
        for name in Settings.model_fields
    )
    texts = {
        option: re.sub(r"[\s│]+", " ", text)
        for option, text in re.findall(r"│ (--[\w-]+) (.*?)(?=│ --|╰)", page, flags=re.DOTALL)
    }
    assert "at least 1; 20 in mini, 150 in paper" in texts["--rounds"]
    assert "The original code's --num_epochs" in texts["--rounds"]
    assert "above 0; default: 0.001" in texts["--lr"]
    assert "one of gradient, factored, dense; default: gradient" in texts["--reply"]
    assert "Section 6.1" in texts["--public"] and "fedmuscle" in texts["--algorithm"]
    assert "data/mini in mini" in texts["--data-dir"]


# --- mistakes


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("rnu", "Did you mean 'run'"),
        ("run --algorithm fedmussel", "unknown algorithm 'fedmussel'; did you mean 'fedmuscle'?"),
        ("run --setup SETUP2", "unknown setup 'SETUP2'; did you mean 'setup2'?"),
        ("run --rounds many", "rounds: Input should be a valid integer"),
        ("run --tau [[1", "tau: '[[1' is not JSON"),
        ("run --config taken", "error: taken: Expected '=' after a key"),
        ("run --tau x", "error: tau: Input should be a valid number, "),
        ('run --tau [[0.2,"x"],[0.2,0.2]]', "error: tau.0.1: Input should be a valid number, "),
        ("run --adapter_method prefix", "only lora is known"),
        ("run --num_MLC_clients 9", "there are 3 users with MLC"),
        ("run --users 1,2 --num_MLC_clients 2", "users: --num_..._clients say who takes part too"),
        ('run --backbones {"ViT-Tiy":"x"}', "'ViT-Tiy'; did you mean 'ViT-Tiny'?"),
        ("run --device quantum", "device: 'quantum' can't be used here"),
        ("run --data_dir nowhere --rounds 1", "data_dir: nowhere: no such folder"),
        ("run --data-dir=", "--data-dir: the value is empty"),
        ("run --save-models taken", "taken"),
        ("reproduce tabel7", "no notebook 'tabel7'; did you mean 'table7'?"),
        ("reproduce table7 --profile nothing", "unknown profile 'nothing'"),
        ("reproduce table7 -p ronds=3", "no parameter or setting 'ronds'; did you mean 'rounds'?"),
        ("reproduce table7 --seeds -1", "seeds: whole numbers with commas between them"),
        ("reproduce table7 --output taken/below", "taken/below/mini: Not a directory"),
        ("verify --sample 1 --profile no", "figures/no/runs.zip: no run of this version"),
        ("notebook ../up", "a name such as depth or my_study is needed"),
        ("realign nowhere", "nowhere: no such file"),
    ],
)
def test_a_mistake_is_one_line(line, message, capsys, tmp_path, monkeypatch, store):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "fedmuscle_lib.reproduce.grid._started",
        lambda *_: pytest.fail("a kernel was started"),
    )
    (tmp_path / "taken").write_text("by something else")
    assert main(line.split(" ")) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("error: ") and message in last
    assert (tmp_path / "taken").read_text() == "by something else"


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (RuntimeError("of torch:\na second line"), 1, "of torch: a second line"),
        (Diverged("user 5: the loss is not finite"), 1, "user 5: the loss is not finite"),
        (PermissionError(13, "Permission denied", "there"), 2, "there: Permission denied"),
        (KeyboardInterrupt(), 130, None),
    ],
)
def test_whatever_fails_is_one_line(error, code, line, monkeypatch, capsys):
    """2 is for what was typed, 1 for what failed while it ran."""

    def fail(*_, **__):
        raise error

    monkeypatch.setattr(run_command, "run", fail)
    monkeypatch.setattr(run_command, "stored", lambda settings: None)
    assert main(["run"]) == code
    assert capsys.readouterr().err == ("" if line is None else f"error: {line}\n")


@pytest.mark.parametrize(
    "line", ["run --setup SETUP2 --traceback", "--traceback run --setup SETUP2"]
)
def test_a_traceback_is_shown_to_who_asks_for_it(line, capsys):
    assert main(line.split()) == 2
    assert "Traceback" in capsys.readouterr().err


def test_a_run_that_is_not_stored_where_nothing_may_be_computed_is_one_line(
    store, monkeypatch, capsys
):
    monkeypatch.setenv("FEDMUSCLE_COMPUTE", "0")
    assert main(["run", "--rounds", "1"]) == 2
    assert "error: fedmuscle voc seed 0 is not stored" in capsys.readouterr().err


# --- run: results


def test_delta_is_shown_with_the_papers_value(capsys):
    run_command.show([history("local", [40] * 6), history("fedmuscle", [44] * 6)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[-3:] == [
        "Delta after alignment: +10.00 %",
        "Delta after local: +10.00 %",
        "the paper's Delta, with other data and models: +26.7 %",
    ]


def test_run_prints_users_and_delta(
    small_world, store, monkeypatch, capsys, tmp_path, assert_usual_rights
):
    where = {"data_dir": small_world, "models_path": small_world / "models"}
    places = f"--data-dir {where['data_dir']} --models-path {where['models_path']}"
    line = (
        f"run --users 5,6 --others 1 --rounds 1 --local-epochs 1 --public-size 32 {places}".split()
    )
    assert main(line) == 0
    out = capsys.readouterr().out
    assert (
        "Delta: local training has not been run" in out
        and "fedmuscle voc seed 0: finished in " in out
    )
    path = store.entry(
        address_of(
            Settings(users=(5, 6), others=1, rounds=1, local_epochs=1, public_size=32, **where)
        )
    ).path
    assert f"stored in {path}\n" in out
    assert main([*line, "--with-local"]) == 0
    out = capsys.readouterr().out
    assert "Delta after alignment: " in out and "Delta after local: " in out
    assert (
        "the paper's Delta" not in out and "MB up" in out
    )  # the paper has no Delta of these two users
    lines = out.splitlines()
    assert [line.split(":")[0] for line in lines if "finished" in line] == ["local voc seed 0"]
    assert f"stored in {path}" in lines
    header, _, sixth = (
        line.split()
        for line in lines[lines.index(next(line for line in lines if "trivial" in line)) :][:3]
    )
    assert header[-2:] == ["value", "trivial"]
    assert (
        sixth[1:3] == ["ViT-Tiny", "IC10"] and sixth[-1] == "10.0"
    )  # of ten classes, one is right everywhere
    assert not logging.getLogger("fedmuscle").handlers
    assert main([*line, "--save-models", str(tmp_path / "models")]) == 0
    assert f"saved in {tmp_path / 'models'}\n" in capsys.readouterr().out
    assert_usual_rights(tmp_path)
    user = load_user(tmp_path / "models/user_6", small_world / "models/vit-tiny")
    assert f"{user.about['metrics'][-1]['value']:.2f}".startswith(sixth[-2])


# --- stored runs

TINY = {"users": (5, 6), "others": 1, "rounds": 2, "local_epochs": 1, "public_size": 32}


class Stop(Exception):
    pass


@pytest.fixture(scope="module")
def computed(small_settings, tmp_path_factory):
    """A folder with two finished runs and one that was cut off after its first round; and the
    histories of the first two.
    """

    def stop(tick):
        raise Stop

    store = Store(tmp_path_factory.mktemp("computed"))
    histories = [
        run(small_settings(**TINY, algorithm=name), progress=str, store=store)
        for name in ("local", "head_only")
    ]
    with pytest.raises(Stop):
        run(small_settings(**TINY), progress=stop, store=store)
    return store.root, histories


@pytest.fixture
def three_runs(computed, store):
    """The histories of two finished runs, which lie in the store beside one that was cut off."""
    folder, histories = computed
    shutil.copytree(folder, store.root)
    return histories


def listed(capsys):
    assert main(["runs"]) == 0
    return capsys.readouterr().out.splitlines()


def test_stored_runs_are_listed(three_runs, store, capsys):
    addresses = {
        history.settings.algorithm: history.provenance["address"] for history in three_runs
    }
    *lines, total = listed(capsys)
    rows = {row.split()[0]: row for row in lines}
    local = rows[addresses["local"]]
    assert (
        " local " in local
        and "complete computed" in local
        and three_runs[0].provenance["finished"] in local
    )
    assert "users=[5, 6]" in local and "rounds=2" in local
    (cut,) = (row for row in rows.values() if "interrupted" in row)
    assert " fedmuscle " in cut
    assert total.startswith("3 runs; ") and str(store.root) in total


def test_a_run_is_described_by_what_the_profile_does_not_have():
    settings = Settings(setup="setup2", public="flickr30k", rounds=4, tau_prime=0.1)
    words = described(settings.recorded(), "fedmuscle")
    assert words == "fedmuscle flickr30k setup2 mini rounds=4 tau_prime=0.1"
    small = described(Settings(profile="small").recorded(), "fedmuscle")
    assert small == "fedmuscle voc setup1 small"


@pytest.fixture
def ship(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    return import_module("ship_runs").ship


@pytest.fixture
def reference(three_runs, tmp_path):
    """A notebook's folder whose provenance names the two finished runs."""
    folder = tmp_path / "figures/mini/ablation"
    folder.mkdir(parents=True)
    named = [
        {"arm": history.settings.algorithm, "address": history.provenance["address"]}
        for history in three_runs
    ]
    told = {
        "shared": {"finished": "2026-11-20T14:23:29+00:00"},
        "arms": {run["arm"]: {} for run in named},
        "runs": named,
    }
    (folder / "provenance.json").write_text(json.dumps({"command": "..."} | told))
    given = {
        "profile": "mini",
        "output": "../figures",
        "seeds": [0],
        "overrides": {"rounds": 2, "data_dir": "/somewhere"},
    }
    (folder / "result.json").write_text(json.dumps({"parameters": given}))
    (folder / "README.md").write_text("Of these runs ...\n```\n...\n```\n")
    return folder


def test_the_runs_behind_a_reference_are_shipped(
    reference, ship, three_runs, store, tmp_path, capsys
):
    shipped = reference.parent / "runs.zip"
    write_archive(shipped, {"older": b"of an earlier reference"})
    ship([reference])
    out = capsys.readouterr().out
    assert f"{reference}: 2 runs shipped" in out
    assert {entry.address for entry in Store(tmp_path, (shipped,)).entries() if entry.shipped} == {
        "older",  # a page may name it later
        *(h.provenance["address"] for h in three_runs),
    }
    provenance = json.loads((reference / "provenance.json").read_text())
    assert provenance["shipped"] and provenance["command"] == "... -p rounds=2"
    assert (reference / "README.md").read_text() == "Of these runs ...\n```\n... -p rounds=2\n```\n"
    assert provenance["parameters"] == {
        "seeds": [0],
        "overrides": {"rounds": 2},
    }  # no path of this machine

    shutil.rmtree(store.root)
    history, *_ = three_runs
    below = run(history.settings, store=Store(tmp_path / "other", (shipped,)))
    assert below.origin == "shipped"
    pd.testing.assert_frame_equal(below.metrics, history.metrics, check_exact=True)
    ship([reference])  # they are there already
    assert json.loads((reference / "provenance.json").read_text()) == provenance
    (reference / "result.json").write_text(
        json.dumps({"parameters": {"seeds": [7]}, "missing": "1 run is not stored"})
    )
    ship([reference])
    assert json.loads((reference / "provenance.json").read_text()) == provenance, (
        "what lacked a run did not make the results"
    )
    write_archive(shipped, {})
    with pytest.raises(FileNotFoundError, match="no finished run"):
        ship([reference])


# --- verify


@pytest.fixture
def figures(reference, ship, small_world, capsys, monkeypatch):
    """The folder ``figures`` with two shipped runs, and the arguments that verify them."""
    ship([reference])
    capsys.readouterr()
    folder = reference.parents[1]
    monkeypatch.setattr("fedmuscle_lib.cli.verify.FIGURES", folder)
    line = f"verify --data-dir {small_world} --models-path {small_world / 'models'}"
    return folder, line.split()


LAST = (  # row of their metrics
    "round 2, phase after_alignment, user 6, model ViT-Tiny, task IC10, metric Accuracy"
)


def verdicts(capsys):
    return [line for line in capsys.readouterr().out.splitlines() if ": finished in " not in line]


def tampered(folder, name, **provenance):
    """Change one shipped run's last metric by two points of a hundred, as another code would have
    it, with whole checksums.
    """
    records = shipped_records(folder)
    for address, record in records.items():
        if record.provenance["settings"]["algorithm"] == name:
            record.tables["metrics"].loc[record.tables["metrics"].index[-1], "value"] += 2
            records[address] = Record(record.tables, record.provenance | provenance)
    write_archive(
        folder / "mini/runs.zip", {address: record.pack() for address, record in records.items()}
    )


def shipped_records(folder):
    return {
        entry.address: entry.read()
        for entry in Store(folder / "none", (folder / "mini/runs.zip",)).entries()
    }


def test_shipped_runs_are_computed_again_and_equal(figures, capsys):
    _, line = figures
    assert main([*line, "--sample", "5"]) == 0
    first, *lines = verdicts(capsys)
    assert re.fullmatch("2 of 2 shipped runs, drawn with --seed [0-9]+", first)
    assert len(lines) == 2 and all(line.endswith(": equal") for line in lines)
    assert {line.split()[1] for line in lines} == {"local", "head_only"}


@pytest.mark.slow
def test_a_run_that_differs_is_told_by_user_and_round(figures, capsys):
    folder, line = figures
    tampered(folder, "local")
    assert main([*line, "--sample", "2"]) == 1
    _, *lines = verdicts(capsys)
    differing, equal = sorted(lines, key=lambda line: line.endswith("equal"))
    assert (
        "differs; round 2, phase after_alignment, user 6, model ViT-Tiny, task IC10, metric"
        " Accuracy: "
        in differing
        and equal.endswith(": equal")
    )


@pytest.mark.slow
def test_where_rounding_differs_a_few_samples_may_be_judged_otherwise(figures, capsys):
    """Two points are four of 200 samples."""
    folder, line = figures
    tampered(folder, "local", processor="another")
    tampered(folder, "head_only", processor="another")
    assert main([*line, "--sample", "2"]) == 0
    assert capsys.readouterr().out.count("within the tolerance, by 2 at most") == 2


def test_a_missing_row_is_a_difference(three_runs):
    history = replace(three_runs[0], metrics=three_runs[0].metrics[:-1])
    _, (sentence,) = verify(history)
    assert sentence.startswith(f"{LAST}: nan there")


# --- a new notebook


def test_a_notebook_is_laid_down_once(tmp_path, capsys):
    assert main(["notebook", "depth_of_heads", "--folder", str(tmp_path)]) == 0
    path = tmp_path / "depth_of_heads.ipynb"
    assert str(path) in capsys.readouterr().out
    notebook = nbformat.read(path, as_version=4)
    assert notebook.cells[0].source.startswith("# depth_of_heads: ")
    source = "\n".join(cell.source for cell in notebook.cells)
    assert "NAME" not in source and '"depth_of_heads", profile, output' in source
    before = path.read_bytes()
    assert main(["notebook", "depth_of_heads", "--folder", str(tmp_path)]) == 2
    assert path.read_bytes() == before
