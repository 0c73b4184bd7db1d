from pathlib import Path
from typing import Any

import pytest

from fedmuscle_lib.runs.short_runs import record


def _fingerprint(loss: float, version: str = "1") -> dict[str, Any]:
    return {"versions": {"core": version}, "losses": [[loss, None]], "metrics": [50.0], "bytes": 0}


def _record(path: Path, fingerprint: dict[str, Any]) -> None:
    record(path, {"local": None}, lambda _: fingerprint, [])


@pytest.mark.parametrize(
    "now",
    [_fingerprint(2.001), _fingerprint(3.0, version="2")],
    ids=["rounding", "another version"],
)
def test_rounding_and_a_raised_version_are_recorded(tmp_path, now):
    _record(tmp_path / "found.json", _fingerprint(2.0))
    before = (tmp_path / "found.json").read_text()
    _record(tmp_path / "found.json", now)
    assert (tmp_path / "found.json").read_text() != before


def test_a_number_that_moved_without_a_version_is_not_recorded(tmp_path):
    _record(tmp_path / "found.json", _fingerprint(2.0))
    before = (tmp_path / "found.json").read_text()
    with pytest.raises(ValueError, match="local: a loss moved by more than rounding"):
        _record(tmp_path / "found.json", _fingerprint(2.01))
    assert (tmp_path / "found.json").read_text() == before
