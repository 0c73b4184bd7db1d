"""Properties of a stored run: any flipped byte is noticed."""

from zipfile import ZIP_STORED

import pytest
from histories import history, packed_run
from hypothesis import given
from hypothesis import strategies as st

from fedmuscle_lib.runs import Damaged, Record
from fedmuscle_lib.runs.archive import Sealed, zipped

CONTENT = packed_run(history("local", [40.0] * 6))


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("record") / "run.zip"


@given(st.integers(0, len(CONTENT) - 1), st.integers(1, 255))
def test_a_run_with_any_byte_flipped_is_refused_or_the_same(path, at, flip):
    """A zip has bytes that say nothing of the content, such as a member's date.

    No other flip goes unnoticed.
    """
    path.write_bytes(CONTENT)
    whole = Record.read(path)
    path.write_bytes(CONTENT[:at] + bytes([CONTENT[at] ^ flip]) + CONTENT[at + 1 :])
    try:
        read = Record.read(path)
    except Damaged as error:
        assert str(path) in str(error)
    else:
        assert read.provenance == whole.provenance and all(
            read.tables[name].equals(table) for name, table in whole.tables.items()
        )


SHIPPED = zipped({"a-b.zip": CONTENT}, ZIP_STORED)


@given(st.integers(0, len(SHIPPED) - 1), st.integers(1, 255))
def test_a_run_of_an_archive_with_any_byte_flipped_is_refused_or_the_same(at, flip):
    try:
        assert (
            Sealed(SHIPPED[:at] + bytes([SHIPPED[at] ^ flip]) + SHIPPED[at + 1 :], "runs.zip").read(
                "a-b.zip"
            )
            == CONTENT
        )
    except Damaged as error:
        assert "runs.zip" in str(error)
