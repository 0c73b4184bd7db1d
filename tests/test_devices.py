"""Runs on a device without float64, as Apple's MPS is one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedmuscle_lib.core.files import python_path
from fedmuscle_lib.runs import SYSTEMS

PROGRAM = Path(__file__).with_name("no_float64.py")


@pytest.mark.parametrize(
    ("system", "names"),
    [
        ("fedmuscle", ["no run"]),  # the loss alone
        *(pytest.param(name, [], marks=pytest.mark.slow) for name in SYSTEMS),
    ],
)
def test_no_run_needs_float64_on_its_device(system, names, small_world):
    found = subprocess.run(
        [sys.executable, PROGRAM, small_world, system, *names],
        env=os.environ | {"PYTHONPATH": python_path()},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr[-2000:]
