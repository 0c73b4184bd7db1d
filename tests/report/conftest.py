"""Runs that several files report on."""

import pytest
from histories import as_runs, history

from fedmuscle_lib import report


@pytest.fixture(scope="session")
def paper_runs():
    """Table 7's cells as runs."""
    return as_runs("table7")


@pytest.fixture(scope="session")
def table1_runs():
    """Table 1's cells as runs."""
    return as_runs("table1")


@pytest.fixture
def arms():
    """FedMuscle and self, as usual and with another M."""
    runs = [history("local", [40] * 6), history("fedmuscle", [44] * 6), history("self", [40] * 6)]
    runs += report.as_arm([history("fedmuscle", [42] * 6, others=1, flops=2 * 10**12)], "M = 1")
    return runs + report.as_arm([history("self", [41] * 6, others=1, tau=0.3)], "M = 1, cold")
