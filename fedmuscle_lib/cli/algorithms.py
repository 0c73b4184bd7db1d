"""``algorithms``: the algorithms of every system, in a list."""

from __future__ import annotations

import inspect
import sys

from fedmuscle_lib.creamfl import algorithms as creamfl
from fedmuscle_lib.fedloge import methods
from fedmuscle_lib.fedmuscle import algorithms


def command() -> None:
    """List the algorithms of `run`: name, label, and whether it is the paper's, a control or ours;
    those of `fedloge` and `creamfl`.
    """
    print("run --algorithm")
    for name in algorithms.names():
        algorithm = algorithms.get(name)
        print(f"{name:17}{algorithm.label:31}{algorithm.source}")
    print("\nfedloge --algorithm")
    for name in methods.names():
        method = methods.get(name)
        said = inspect.getdoc(sys.modules[method.__module__]) or method.label
        print(f"{name:17}{said.splitlines()[0]}")
    print("\ncreamfl --algorithm")
    for name in creamfl.names():
        print(f"{name:17}{creamfl.get(name).label:31}{creamfl.get(name).source}")
