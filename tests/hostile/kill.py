"""Kills runs and reproductions at random moments, starts them again, and compares what comes of
them with what nobody killed.

``python tests/hostile/kill.py --points 50 --seed 1`` prints a line for each point. Afterwards the
metrics are the same to the bit, no process is left, and no file but those that an undisturbed
command leaves. A point is drawn from the seed and its number alone, as a share of the undisturbed
time.
"""

from __future__ import annotations

import argparse
import io
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import uuid
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import nbformat
import pandas as pd

ROOT = Path(__file__).parents[2]
SETTINGS = {
    "users": (5, 6),
    "others": 1,
    "rounds": 4,
    "local_epochs": 1,
    "public_size": 32,
    "evaluate_every": 1,
    "threads": 1,
}
PATIENCE = 60.0  # seconds in which what a killed process started must end
_MARK = "FEDMUSCLE_KILLED_BY"
_SECONDS = {"seconds", "flop"}  # columns of costs that are measured, not computed

RUN = """
import sys
from fedmuscle_lib.__main__ import main
sys.exit(main(["run", *sys.argv[3:]]))
"""
REPRODUCE = """
import sys
from functools import partial
from pathlib import Path
from fedmuscle_lib.__main__ import main
from fedmuscle_lib.cli import reproduce as command
command.reproduce = partial(command.reproduce, folder=Path(sys.argv[1]))
sys.exit(main(["reproduce", "--output", sys.argv[2]]))
"""
_CELL = """from pathlib import Path
from fedmuscle_lib import Settings, run_all
histories = run_all([Settings(algorithm=name, **{settings}) for name in ("local", "fedmuscle")])
(Path(output) / profile / "cheap").mkdir(parents=True, exist_ok=True)
for history in histories:
    history.metrics.to_csv(Path(output) / profile / "cheap" / f"{{history.settings.algorithm}}.csv", index=False)"""


@dataclass
class Place:
    """A folder of its own for a command: its store, its results, and its temporary files."""

    folder: Path
    data_dir: Path

    def command(self, what: str) -> list[str]:
        notebooks, results = self.folder / "n", self.folder / "results"
        notebooks.mkdir(exist_ok=True)
        given = SETTINGS | {
            "data_dir": str(self.data_dir),
            "models_path": str(self.data_dir / "models"),
        }
        if what == "reproduce":
            cells = [
                nbformat.v4.new_code_cell(
                    "profile: str = 'mini'  # data\noutput: str = ''  # where",
                    metadata={"tags": ["parameters"]},
                ),
                nbformat.v4.new_code_cell(_CELL.format(settings=given)),
            ]
            kernel = {
                "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}
            }
            nbformat.write(
                nbformat.v4.new_notebook(cells=cells, metadata=kernel), notebooks / "cheap.ipynb"
            )
            return [sys.executable, "-c", REPRODUCE, str(notebooks), str(results)]
        shown = {
            name: ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
            for name, value in given.items()
        }
        options = [part for name, value in shown.items() for part in (f"--{name}", value)]
        return [sys.executable, "-c", RUN, str(notebooks), str(results), *options]

    @contextmanager
    def started(self, what: str, mark: str) -> Iterator[subprocess.Popen[bytes]]:
        temporary = self.folder / "t"
        temporary.mkdir(exist_ok=True)
        own = {"FEDMUSCLE_RUNS": str(self.folder / "runs"), "FEDMUSCLE_SHIPPED": "0", _MARK: mark}
        environment = (
            os.environ
            | own
            | {
                "TMPDIR": str(temporary),
                "PYTHONPATH": str(ROOT),
                "OMP_NUM_THREADS": "1",
            }
        )
        with (self.folder / "said").open("wb") as said:
            process = subprocess.Popen(
                self.command(what), env=environment, stdout=said, stderr=said, cwd=ROOT
            )
            try:
                yield process
            finally:
                process.kill()
                process.wait()

    def finish(self, what: str, mark: str) -> str:
        """Let the command end; what is wrong if it fails."""
        with self.started(what, mark) as process:
            code = process.wait()
        return f"exit code {code}: {(self.folder / 'said').read_text()[-500:]}" if code else ""

    def numbers(self) -> dict[str, bytes]:
        """Every table of every run, and every CSV file of the results, without what was measured of
        the machine.
        """
        found = {
            str(path.relative_to(self.folder)): path.read_bytes()
            for path in (self.folder / "results").rglob("*.csv")
        }
        for path in (self.folder / "runs").glob("*/run.zip"):
            with zipfile.ZipFile(path) as file:
                for name in file.namelist():
                    if name.endswith(".csv"):
                        table = pd.read_csv(io.BytesIO(file.read(name)))
                        found[f"{path.parent.name}/{name}"] = (
                            table.drop(columns=_SECONDS & {*table}).to_csv().encode()
                        )
        return found

    def files(self) -> set[str]:
        """What lies there, temporary files too."""
        return {
            str(path.relative_to(self.folder))
            for path in self.folder.rglob("*")
            if path.is_file() or path.is_socket()
        }


def living(mark: str) -> list[int]:
    """Processes that have the mark in their environment, whoever started them."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state = (folder / "stat").read_text().rpartition(") ")[2][:1]
            if (
                state not in "ZX"
                and f"{_MARK}={mark}".encode() in (folder / "environ").read_bytes()
            ):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def undisturbed(
    what: str, folder: Path, data_dir: Path
) -> tuple[dict[str, bytes], set[str], float]:
    """Numbers, files and seconds of a command that nobody kills."""
    place, began = Place(folder, data_dir), time.monotonic()
    folder.mkdir(parents=True)
    if wrong := place.finish(what, uuid.uuid4().hex):
        raise RuntimeError(wrong)
    return place.numbers(), place.files(), time.monotonic() - began


def killed(
    what: str,
    folder: Path,
    data_dir: Path,
    whole: tuple[dict[str, bytes], set[str], float],
    draws: random.Random,
) -> list[str]:
    """Kill the command once or twice, start it again, and return what is wrong then."""
    numbers, files, seconds = whole
    place, mark, wrong = Place(folder, data_dir), uuid.uuid4().hex, []
    folder.mkdir(parents=True)
    for _ in range(draws.choice((1, 1, 2))):
        with place.started(what, mark) as process:
            end = time.monotonic() + draws.random() * seconds
            while process.poll() is None and time.monotonic() < end:
                time.sleep(0.01)
            process.send_signal(signal.SIGKILL)
        if draws.random() < 0.5 and (left := _left(mark)):
            wrong.append(f"{len(left)} processes are left after the kill")
    wrong += filter(None, [place.finish(what, mark)])
    if left := _left(mark):
        wrong.append(f"{len(left)} processes are left at the end")
    found = place.numbers()
    wrong += [
        f"{name} is another"
        for name in sorted(numbers.keys() | found.keys())
        if numbers.get(name) != found.get(name)
    ]
    wrong += [
        f"{name} is {'left' if name not in files else 'missing'}"
        for name in sorted(place.files() ^ files)
    ]
    return wrong


def _left(mark: str) -> list[int]:
    end = time.monotonic() + PATIENCE
    while (left := living(mark)) and time.monotonic() < end:
        time.sleep(0.1)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    return left


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--points", type=int, default=10, help="of each command")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first point")
    parser.add_argument("--commands", default="run,reproduce")
    parser.add_argument("--data-dir", type=Path, default=ROOT / "data/mini")
    asked = parser.parse_args()
    bad = 0
    with tempfile.TemporaryDirectory(prefix="k-") as scratch:
        for what in asked.commands.split(","):
            whole = undisturbed(what, Path(scratch) / what, asked.data_dir.resolve())
            print(f"{what}: {whole[2]:.0f} s undisturbed", flush=True)
            for point in range(asked.first, asked.first + asked.points):
                draws = random.Random(f"{asked.seed} {what} {point}")
                wrong = killed(
                    what,
                    Path(scratch) / f"{what[:2]}{point}",
                    asked.data_dir.resolve(),
                    whole,
                    draws,
                )
                bad += bool(wrong)
                print(f"{what} {point}: {'; '.join(wrong) or 'the same'}", flush=True)
    print(f"{bad} of {asked.points * len(asked.commands.split(','))} points bad")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
