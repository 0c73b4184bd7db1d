"""The examples of docs/extending.md and docs/fedloge.md, laid into a copy of the house and run
there; and that pages name what there is.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedmuscle_lib.__main__ import main
from fedmuscle_lib.data.encodings import Pixels
from fedmuscle_lib.fedmuscle import algorithms
from fedmuscle_lib.fedmuscle.ablations import ABLATION_ARMS
from fedmuscle_lib.reproduce import declared
from fedmuscle_lib.tasks import ImageClassification

ROOT = Path(__file__).parents[2]
GUIDES = [ROOT / "docs/extending.md", ROOT / "docs/fedloge.md"]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
SECTIONS = {
    title: text
    for page in GUIDES
    for title, text in re.findall(
        r"^## (.+?)\n(.*?)(?=^## |\Z)", page.read_text(encoding="utf8"), re.MULTILINE | re.DOTALL
    )
}


class House:
    """A copy of the repository's packages in ``root``, into which an example is laid."""

    def __init__(self, root: Path, runs: Path) -> None:
        self.root = root
        for package in ("fedmuscle_lib", "data_prep"):
            shutil.copytree(
                ROOT / package, root / package, ignore=shutil.ignore_patterns("weights")
            )
        (root / "notebooks").mkdir()
        own = {"PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1", "FEDMUSCLE_RUNS": str(runs)}
        self.environment = os.environ | own
        self.before = self.files()

    def files(self) -> dict[str, str]:
        """Digest of every file by its path."""
        paths = [path for path in self.root.rglob("*") if path.is_file()]
        return {
            path.relative_to(self.root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in paths
        }

    def touched(self) -> set[str]:
        """The files that are new or changed."""
        return {path for path, digest in self.files().items() if self.before.get(path) != digest}

    def lay(self, section: str) -> None:
        """Write what the section's code blocks hold: ``python`` is a new file, each ``diff`` a
        place of one that is there.
        """
        for name, blocks in re.findall(
            r"^`([\w/.]+)`:\n((?:\n```\w+\n.*?^```\n)+)",
            SECTIONS[section],
            re.MULTILINE | re.DOTALL,
        ):
            path = self.root / name
            for kind, block in re.findall(
                r"^```(python|diff)\n(.*?)^```", blocks, re.MULTILINE | re.DOTALL
            ):
                if kind == "python":
                    assert not path.exists()
                    path.write_text(block, encoding="utf8")
                else:
                    lines = block.splitlines(keepends=True)
                    old, new = (
                        "".join(line[1:] for line in lines if line[0] == " "),
                        "".join(line[1:] for line in lines),
                    )
                    text = path.read_text(encoding="utf8")
                    assert text.count(old) == 1, old
                    path.write_text(text.replace(old, new), encoding="utf8")

    def run(self, section: str, *further: str) -> list[str]:
        """What the section's commands print (:func:`typed`)."""
        printed = []
        for arguments in typed(section, *further):
            done = subprocess.run(
                [sys.executable, *arguments],
                cwd=self.root,
                env=self.environment,
                capture_output=True,
                text=True,
            )
            assert done.returncode == 0, done.stdout + done.stderr
            printed += done.stdout.splitlines()
        return printed


def typed(section: str, *further: str) -> list[list[str]]:
    """Arguments of the section's commands; the last one is also given ``further`` options, in place
    of those of the same name.
    """
    (block,) = re.findall(r"^```bash\n(.*?)^```", SECTIONS[section], re.MULTILINE | re.DOTALL)
    commands = [shlex.split(line) for line in block.splitlines()]
    for flag in further[::2]:
        if flag.startswith("--") and flag in commands[-1]:
            at = commands[-1].index(flag)
            del commands[-1][at : at + 2]
    commands[-1] += further
    assert all(command[:2] == ["python", "-m"] for command in commands)
    return [command[1:] for command in commands]


@pytest.fixture
def house(tmp_path) -> House:
    return House(tmp_path / "house", tmp_path / "runs")


@pytest.fixture
def small(small_world) -> list[str]:
    """Arguments of a run of seconds in the embedded world."""
    sizes = ["--rounds", "1", "--local-epochs", "1", "--public-size", "64"]
    return [*sizes, "--data-dir", str(small_world), "--models-path", str(small_world / "models")]


def named(section: str) -> set[str]:
    """The files that the section says it touches."""
    (line,) = re.findall(r"^Files: (.+)$", SECTIONS[section], re.MULTILINE)
    return set(re.findall(r"`([^`]+)`", line))


def test_an_algorithm_is_one_file(small, store, tmp_path, monkeypatch, capsys):
    """It is known by its name, and so is its option; its users send each public batch once."""
    section = "An algorithm"
    ((name, code),) = re.findall(
        r"^`([\w/.]+)`:\n\n```python\n(.*?)^```", SECTIONS[section], re.MULTILINE | re.DOTALL
    )
    assert {name} == named(section) and Path(name).parent == Path(
        algorithms.__file__
    ).parent.relative_to(ROOT)
    (tmp_path / Path(name).name).write_text(code, encoding="utf8")
    monkeypatch.setattr(algorithms, "__path__", [*algorithms.__path__, str(tmp_path)])
    monkeypatch.setattr(algorithms.Algorithm, "registry", dict(algorithms.Algorithm.registry))
    ((_, _, *arguments),) = typed(section, *small, "--users", "5,6", "--others", "1")
    assert main(arguments) == 0
    printed = capsys.readouterr().out.splitlines()
    megabytes = 64 * 256 * 4 / 1e6
    assert any(line.startswith(f"per user and round: {megabytes:.2f} MB up") for line in printed)
    assert any(line.startswith("Delta after alignment: ") for line in printed)


@pytest.mark.slow
def test_a_baseline_of_fedloges_system_is_one_file(house, mini_world):
    """With the counts to the power of 0 it is FedAvg, so the option is read."""
    house.lay("A baseline of your own")
    line = ["--rounds", "2", "--data-dir", str(mini_world)]
    balanced = house.run("A baseline of your own", *line)
    plain = house.run("A baseline of your own", *line, "--options", '{"balanced.power": 0}')
    fedavg = house.run("A baseline of your own", *line, "--algorithm", "fedavg")
    assert house.touched() == named("A baseline of your own")
    tables = [
        [line for line in printed if re.match("head +[0-9]", line)]
        for printed in (balanced, plain, fedavg)
    ]
    assert tables[1] == tables[2] != tables[0] and len(tables[0]) == 2


@pytest.fixture
def few(mini_world) -> list[str]:
    """Arguments of a run of CreamFL's system of seconds."""
    sizes = [
        "--rounds",
        "1",
        "--public-size",
        "16",
        "--test-size",
        "20",
        "--pairs-size",
        "24",
        "--participants",
        "2",
    ]
    return [*sizes, "--data-dir", str(mini_world), "--models-path", str(mini_world / "models")]


@pytest.mark.slow
def test_an_aggregation_is_one_file(house, few):
    section = "An aggregation in CreamFL's federation"
    house.lay(section)
    printed = house.run(section, *few, "--clients", '{"images": 2, "texts": 0, "pairs": 0}')
    assert house.touched() == named(section)
    assert "mean_of_clients seed 0: the server's R@k in % after round 1" in printed


@pytest.mark.slow
def test_a_task_is_one_file_and_a_row(house, small):
    house.lay("A task")
    printed = house.run("A task", *small)
    assert house.touched() == named("A task")
    (row,) = (line.split() for line in printed if " OC " in line)
    user, model, _, metric, value, trivial = row
    assert (user, model, metric) == ("7", "ViT-Small", "RMSE")
    assert 0 < float(value) < 10 and 0 < float(trivial) < 10
    assert any(line.startswith("Delta after alignment: ") for line in printed)


@pytest.mark.slow
def test_an_ablation_notebook_is_one_command(house, small, tmp_path):
    settings = dict(zip(small[::2], small[1::2], strict=True)) | {
        "--users": "[5,6]",
        "--others": "1",
    }
    tiny = [
        text
        for flag, value in settings.items()
        for text in ("-p", f"{flag.strip('-').replace('-', '_')}={value}")
    ]
    house.run("An ablation notebook", "--output", str(tmp_path / "results"), *tiny)
    assert house.touched() == named("An ablation notebook")
    assert {"profile", "seeds", "setting", "values", "output", "overrides"} <= set(
        declared(house.root / "notebooks/rank.ipynb")
    )
    (folder,) = (tmp_path / "results/mini").glob("rank_*")  # its parameters were changed
    delta = pd.read_csv(folder / "delta.csv")
    assert delta.algorithm.tolist() == [*ABLATION_ARMS] * 2 and sorted(set(delta["rank"])) == [
        4,
        16,
    ]
    assert (folder / "rank.svg").exists() and (folder / "executed.ipynb").exists()


def test_a_data_source_is_one_file(house, tmp_path):
    house.lay("A data source")
    archives, data_dir = tmp_path / "archives", tmp_path / "data"
    archives.mkdir()
    rng = np.random.default_rng(0)
    for split, n in (("train", 120), ("t10k", 60)):
        (archives / f"{split}-images-idx3-ubyte.gz").write_bytes(
            gzip.compress(bytes(16) + rng.bytes(n * 28 * 28))
        )
        (archives / f"{split}-labels-idx1-ubyte.gz").write_bytes(
            gzip.compress(bytes(8) + bytes(i % 10 for i in range(n)))
        )
    house.run(
        "A data source",
        "--archives",
        str(archives),
        "--data-dir",
        str(data_dir),
        "--train-size",
        "5",
        "--val",
        "20",
    )
    assert house.touched() == named("A data source")
    (row,) = re.findall(r"`(ImageClassification\(.*?\))`", SECTIONS["A data source"])
    task = eval(row, {"ImageClassification": ImageClassification})
    for split, n in (("train", 40), ("val", 20), ("test", 30)):
        for client in range(2):
            samples, classes = task.read(data_dir, client, split, Pixels(32))
            assert samples.inputs.shape == (n, 3, 32, 32) and len(classes) == 10


# --- pages


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_names_files_that_are_there(page):
    text = page.read_text(encoding="utf8")
    rooms = "fedmuscle_lib|data_prep|tests|docs|notebooks"
    new = set().union(*(named(section) for section in SECTIONS if "\nFiles: " in SECTIONS[section]))
    paths = set(re.findall(rf"(?<![\w/.])(?:{rooms})/[\w/.]*\w", text)) - new
    assert not [path for path in sorted(paths) if not (ROOT / path).exists()]
