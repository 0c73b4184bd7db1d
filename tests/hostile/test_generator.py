"""The generator of malformed inputs finds nothing bad, and finds faults that were mended when they
are put back.
"""

import random
from contextlib import suppress

import pytest
from hostile.__main__ import fuzz
from hostile.faults import FAULTS
from hostile.kind import KINDS, kind


@pytest.mark.slow
def test_no_malformed_input_is_bad():
    """A fixed seed; ``make fuzz`` goes on with others for as long as one likes."""
    found = fuzz(KINDS, seed=0, cases=50 * len(KINDS))
    assert not found.bad, str(found)
    for name in KINDS:
        assert not kind(name).refusals or found.counts[name, "refused"] > 15, str(found)
    assert sum(found.counts[name, "accepted"] for name in KINDS) > 10, str(found)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_that_is_put_back_is_found(fault):
    kinds = FAULTS[fault].kinds
    found = fuzz(kinds, seed=0, cases=10_000 * len(kinds), seconds=300, fault=fault, first_bad=True)
    assert found.bad, str(found)


@pytest.mark.parametrize("name", KINDS)
def test_what_is_not_malformed_is_read(tmp_path, name):
    """Each kind draws inputs that its reader accepts, so that refusing everything would not do;
    equal draws are equal inputs.
    """
    one, read = kind(name), 0
    (tmp_path / one.file).parent.mkdir(parents=True, exist_ok=True)
    one.prepare(tmp_path)
    for number in range(60):
        case = one.case(random.Random(f"x{number}"))
        assert case == one.case(random.Random(f"x{number}"))
        if case.refused or read:
            continue
        case.write(tmp_path / one.file)
        with suppress(*one.refusals):
            one.read(tmp_path)
            read += 1
    assert read
