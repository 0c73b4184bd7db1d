"""Files and the folder that they lie below."""

import os
import shutil
import subprocess
import sys

from fedmuscle_lib.core.files import ROOT


def test_an_installed_package_writes_below_the_current_folder(tmp_path):
    """And not into site-packages, where it would stay after the package is gone."""
    shutil.copytree(ROOT / "fedmuscle_lib", tmp_path / "site/fedmuscle_lib")
    (tmp_path / "project").mkdir()
    told = subprocess.run(
        [sys.executable, "-c", "from fedmuscle_lib.core.files import ROOT; print(ROOT)"],
        cwd=tmp_path / "project",
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.strip() == str((tmp_path / "project").resolve())
