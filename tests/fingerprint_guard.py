"""The guard of the arithmetic's versions: short runs give what was recorded, or a version was
raised.

On the recorded kind of processor they are equal to the bit. On another one float32 rounds
otherwise: losses agree to a thousandth, and a metric, which counts samples, to what three of them
make. docs/results.md says what this does not notice.
"""

from __future__ import annotations

from typing import Any

import pytest

from fedmuscle_lib.runs.short_runs import rounded_alike


def assert_same(
    name: str, now: dict[str, Any], recorded: dict[str, Any], remedy: str, fewest: int
) -> None:
    """``fewest``: evaluation samples behind a metric."""
    assert now["versions"] == recorded["versions"], f"a version was raised: {remedy}"
    raise_it = (
        f"{name}: a number moved; raise the version of what computes it, or ROUNDING"
        f" (fedmuscle_lib/core/versions.py), then {remedy}"
    )
    assert now["bytes"] == recorded["bytes"], raise_it
    assert now["rounding"] == recorded["rounding"], f"ROUNDING was raised: {remedy}"
    if now["processor"] == recorded["processor"]:
        assert (now["losses"], now["metrics"]) == (
            recorded["losses"],
            recorded["metrics"],
        ), raise_it
        return
    assert rounded_alike(now, recorded), raise_it
    assert now["metrics"] == pytest.approx(recorded["metrics"], rel=5e-3, abs=100 * 3 / fewest), (
        raise_it
    )
