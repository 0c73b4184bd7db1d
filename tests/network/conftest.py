"""Fixtures of a federation over machines."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest

if find_spec("grpc") is None:
    pytest.skip("a federation over machines needs the extra 'federated'", allow_module_level=True)

from toys import Net

from fedmuscle_lib.network import certificates


@pytest.fixture(scope="session")
def keys(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    certificates.make(folder, [*range(1, 7), 9], ["localhost", "127.0.0.1"])
    return folder


@pytest.fixture
def net(tmp_path, keys, small_world) -> Callable[..., Net]:
    return partial(Net, tmp_path, keys, small_world)
