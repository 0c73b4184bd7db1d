"""Runs that several files report on."""

import pytest
from histories import as_runs


@pytest.fixture(scope="session")
def paper_runs():
    """Table 7's cells as runs."""
    return as_runs("table7")
