"""A run that is killed or interrupted and started again gives the numbers of an undisturbed one."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pandas as pd
import pytest
from processes import eventually

from fedmuscle_lib.core.files import python_path

pytestmark = pytest.mark.slow
SMALL = "--users 5,6 --others 1 --rounds 4 --local_epochs 1 --public_size 32 --evaluate_every 1"


def _start(store: Path, data_dir: Path) -> subprocess.Popen[str]:
    given = [*SMALL.split(), "--data_dir", data_dir, "--models_path", data_dir / "models"]
    own = {"FEDMUSCLE_RUNS": str(store), "FEDMUSCLE_SHIPPED": "0", "PYTHONPATH": python_path()}
    return subprocess.Popen(
        [sys.executable, "-m", "fedmuscle_lib", "run", *given],
        env=os.environ | own,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _finished(store: Path, data_dir: Path) -> dict[str, str]:
    """Every table of the run, without measured seconds, and the names of the files beside it."""
    process = _start(store, data_dir)
    said = process.communicate()[0]
    assert process.returncode == 0, said
    (path,) = store.glob("*/run.zip")
    with zipfile.ZipFile(path) as file:
        tables = {
            name: pd.read_csv(io.BytesIO(file.read(name))).drop(columns="seconds", errors="ignore")
            for name in file.namelist()
            if name.endswith(".csv")
        }
    return {name: table.to_csv() for name, table in tables.items()} | {
        "files": str(sorted(each.name for each in path.parent.iterdir()))
    }


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGINT])
def test_a_run_that_is_cut_off_goes_on_to_the_same_numbers(sign, tmp_path, mini_world):
    store = tmp_path / "cut off"
    process = _start(store, mini_world)
    eventually(lambda: [*store.glob("*/checkpoint.pt")] or process.poll() is not None, 300)
    process.send_signal(sign)
    said = process.communicate(timeout=300)[0]
    assert process.returncode == (130 if sign == signal.SIGINT else -sign) and (
        "Traceback" not in said
    )
    assert _finished(store, mini_world) == _finished(tmp_path / "whole", mini_world)
