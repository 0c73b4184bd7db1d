"""A lesson, executed once for all tests of its module, which names it as LESSON and may add a cell
that prints JSON, MEASURED.
"""

import json

import nbformat
import pytest
from lesson import by_name, executed, printed


@pytest.fixture(scope="module")
def kept(request):
    """The lesson's cells by name, as its notebook keeps them."""
    return by_name(nbformat.read(request.module.LESSON, as_version=4))


@pytest.fixture(scope="module")
def lesson(request, tmp_path_factory):
    return executed(
        request.module.LESSON, tmp_path_factory.mktemp("lesson"), request.module.MEASURED
    )


@pytest.fixture(scope="module")
def measured(lesson):
    return json.loads(printed(lesson.cells[-1]))
