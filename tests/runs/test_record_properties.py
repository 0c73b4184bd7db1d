"""Properties of a stored run: any flipped byte is noticed."""

from __future__ import annotations

import pytest
from histories import history, packed_run
from hypothesis import given
from hypothesis import strategies as st

from fedmuscle_lib.runs import Damaged, Record

CONTENT = packed_run(history("local", [40.0] * 6))


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("record") / "run.zip"


@given(st.integers(0, len(CONTENT) - 1), st.integers(1, 255))
def test_a_run_with_any_byte_flipped_is_refused_or_the_same(path, at, flip):
    """A zip has bytes that say nothing of the content, such as a member's date. No other flip goes unnoticed."""
    path.write_bytes(CONTENT)
    whole = Record.read(path)
    path.write_bytes(CONTENT[:at] + bytes([CONTENT[at] ^ flip]) + CONTENT[at + 1 :])
    try:
        read = Record.read(path)
    except Damaged as error:
        assert str(path) in str(error)
    else:
        assert read.provenance == whole.provenance and all(read.tables[name].equals(table) for name, table in whole.tables.items())


@given(st.integers(0, len(CONTENT) - 1), st.integers(1, 255))
def test_a_shipped_run_with_any_byte_flipped_is_refused(path, at, flip):
    import hashlib

    path.write_bytes(CONTENT[:at] + bytes([CONTENT[at] ^ flip]) + CONTENT[at + 1 :])
    with pytest.raises(Damaged):
        Record.read(path, sha256=hashlib.sha256(CONTENT).hexdigest())
