"""The commands of the second system: what they understand, print and refuse, and both systems' runs
side by side.
"""

from __future__ import annotations

import json
import re
import shutil

import miniature_archives
import pandas as pd
import pytest
import toy

from data_prep.__main__ import main as prepare
from fedmuscle_lib import Store, run
from fedmuscle_lib.__main__ import main
from fedmuscle_lib.cli import fedloge as command
from fedmuscle_lib.cli import form
from fedmuscle_lib.fedloge import methods
from fedmuscle_lib.fedloge.settings import Settings

README = "--alpha_dirichlet 0.5 --IF 0.01 --beta 0 --gpu 0 --num_users 40 --frac 0.3"


@pytest.fixture
def world(mini_world, tmp_path):
    """The embedded world at a place that no profile names."""
    (tmp_path / "world").symlink_to(mini_world)
    return tmp_path / "world"


@pytest.fixture
def line(world, monkeypatch):
    """A short run on the command line."""
    monkeypatch.setenv("COLUMNS", "100")
    sizes = [
        text
        for name, value in toy.RUN.items()
        for text in (f"--{name.replace('_', '-')}", json.dumps(value))
    ]
    return ["fedloge", *sizes, "--data-dir", str(world)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "name"), [("imagenet-lt", "imagenet_lt"), ("inaturalist", "inaturalist")]
)
def test_the_profiles_of_large_sets_run_on_a_miniature(
    command, name, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("FEDMUSCLE_RUNS", str(tmp_path / "runs"))
    archives = tmp_path / "archives"
    archives.mkdir()
    getattr(miniature_archives, name)(archives)
    places = f"--archives {archives} --images {archives} --data-dir {tmp_path}"
    assert prepare([command, *places.split()]) == 0
    cut = "--clients 3 --participation 1 --rounds 1 --local-epochs 1 --image-size 64"
    run_it = ["fedloge", "--profile", name, "--data-dir", str(tmp_path), *cut.split()]
    assert main(run_it) == 0
    # ResNet-50's weights and statistics
    assert "per client and round: 94.27 MB up" in capsys.readouterr().out


# --- fedloge: options


@pytest.fixture
def settings_of(monkeypatch):
    """The settings that a command line asks for, on a machine that has every device."""

    def read(line):
        seen = []
        monkeypatch.setattr(form, "try_device", lambda name: None)
        monkeypatch.setattr(
            command, "run", lambda settings, save_models: seen.append(settings) or History()
        )
        monkeypatch.setattr(command, "show", lambda history: None)
        assert main(["fedloge", *line.split()]) == 0
        return seen[0]

    class History:
        settings = None

    return read


def test_the_readmes_command_is_understood(settings_of):
    settings = settings_of(f"{README} --profile paper")
    assert settings.device == "cuda:0" and settings.options["fedprox.mu"] == 0
    named = {"options", "device"}  # the rest of the command is what the profile says anyhow
    assert settings.model_dump(exclude=named) == Settings(profile="paper").model_dump(exclude=named)


def test_their_names_stand_for_ours(settings_of):
    theirs = settings_of(
        "--algorithm fedprox --alpha_dirichlet 1 --IF 0.02 --beta 0.1 --gpu -1 --num-users 7"
        " --frac 1"
    )
    ours = settings_of(
        '--algorithm fedprox --alpha 1 --imbalance 0.02 --options {"fedprox.mu":0.1} --clients 7'
        " --participation 1"
    )
    assert theirs == ours and theirs.device == "cpu"


# --- mistakes


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("fedloge --tau 0.2", "--tau"),
        ("fedloge --algorithm fedlodge", "unknown method 'fedlodge'; did you mean 'fedloge'?"),
        ("fedloge --IF 2", "imbalance: Input should be less than or equal to 1"),
        ("fedloge --network resnet19", "network: unknown 'resnet19'; did you mean 'resnet18'"),
        ("fedloge --save-models taken", "taken"),
        ("realign nowhere", "nowhere: no such file; `python -m fedmuscle_lib fedloge --save"),
        ("realign taken", "taken: not readable tensors"),
    ],
)
def test_a_mistake_is_one_line(line, message, capsys, tmp_path, monkeypatch, store):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").write_text("by something else")
    assert main(line.split()) == 2
    (last,) = capsys.readouterr().err.splitlines()[-1:]
    assert last.startswith("error: ") and message in last


# --- fedloge and realign: results


def numbers(printed: str, title: str) -> pd.DataFrame:
    """The values of the table below a title, by head."""
    lines = printed[printed.index(title) :].split("\n\n")[0].splitlines()
    rows = [
        match.groups()
        for match in (re.fullmatch(r"(.*?)((?: +-?\d+\.\d\d)+)", line) for line in lines)
        if match
    ]
    return pd.DataFrame(
        [[float(value) for value in values.split()] for _, values in rows],
        index=[head for head, _ in rows],
    )


def test_the_two_commands_of_the_readme(line, store, world, tmp_path, capsys, assert_usual_rights):
    """Train with SSE-C, then realign the heads of the saved model: it predicts as at the end of its
    run.
    """
    folder = tmp_path / "model"
    assert main([*line, "--save-models", str(folder)]) == 0
    assert_usual_rights(folder)
    assert_usual_rights(store.root)
    trained = capsys.readouterr().out
    of_global, of_clients = (
        numbers(trained, title) for title in ("Global model,", "Clients' own models,")
    )
    assert of_global.index.tolist() == ["sse_c", "shared", "realigned"]
    assert (of_global.shape[1], of_clients.shape[1]) == (4, 8)
    assert re.search(r"per client and round: 0\.\d\d MB up, 0\.\d\d MB down; \d+ s in all", trained)
    realign = trained.splitlines()[-1].partition("realign it: python -m fedmuscle_lib ")[2]
    assert realign == f"realign {folder}"
    realign += f" --data-dir {world}"

    assert main(realign.split()) == 0
    out = capsys.readouterr().out
    pd.testing.assert_frame_equal(numbers(out, "Global model,"), of_global)
    pd.testing.assert_frame_equal(numbers(out, "Clients' own models,"), of_clients)

    assert main([*realign.split(), "--norm", "0.01"]) == 0
    again = capsys.readouterr().out
    assert not numbers(again, "Global model,").equals(of_global)
    pd.testing.assert_frame_equal(numbers(again, "Clients' own models,"), of_clients)


def test_a_model_without_realigned_heads_says_so(line, store, mini_world, tmp_path, capsys):
    """FedPer's global model has no head either, which its table says."""
    assert main([*line, "--algorithm", "fedper", "--save-models", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "Global model: it has no head" in out and out.splitlines()[-1] == f"saved in {tmp_path}"
    assert main(["realign", str(tmp_path), "--data-dir", str(mini_world)]) == 2
    assert "a model of fedper, which has no realigned head" in capsys.readouterr().err


def test_each_systems_algorithms_are_listed(capsys):
    assert main(["algorithms"]) == 0
    *_, ours = capsys.readouterr().out.strip().split("\n\n")
    assert [row.split()[0] for row in ours.splitlines()[1:]] == methods.names()
    assert "fedprox          FedProx (Li et al., 2020): FedAvg with a term" in ours


# --- both systems' runs


@pytest.fixture(scope="module")
def finished(small_settings, mini_world, tmp_path_factory):
    """A folder with a finished run of each system, and their histories."""
    fedmuscle = small_settings(algorithm="local", users=(5, 6), others=1, rounds=1, public_size=32)
    fedloge = Settings(algorithm="fedavg", data_dir=mini_world, **toy.RUN)
    store = Store(tmp_path_factory.mktemp("finished"))
    return store.root, [run(each, progress=str, store=store) for each in (fedmuscle, fedloge)]


@pytest.fixture
def both(finished, store):
    """The histories of both runs, which lie in the store."""
    folder, histories = finished
    shutil.copytree(folder, store.root)
    return histories


def listed(capsys):
    assert main(["runs"]) == 0
    return capsys.readouterr().out.splitlines()


def test_runs_of_both_systems_are_listed(both, capsys):
    *rows, total = listed(capsys)
    assert any("local voc setup1" in row for row in rows)
    assert any("fedavg glyphs" in row for row in rows) and total.startswith("2 runs; ")


@pytest.mark.slow
def test_shipped_runs_of_both_systems_are_verified(
    both, store, small_world, tmp_path, capsys, monkeypatch
):
    shipped = tmp_path / "figures/mini/runs.zip"
    shipped.parent.mkdir(parents=True)
    store.ship([history.provenance["address"] for history in both], shipped)
    shutil.rmtree(store.root)
    monkeypatch.setattr("fedmuscle_lib.cli.verify.FIGURES", tmp_path / "figures")
    command = f"verify --data-dir {small_world} --models-path {small_world}/models --sample 2"
    assert main(command.split()) == 0
    _, *lines = capsys.readouterr().out.splitlines()
    told = sorted(line.partition(" ")[2] for line in lines if line.endswith(": equal"))
    assert told == ["fedavg glyphs seed 0: equal", "local voc seed 0: equal"]
