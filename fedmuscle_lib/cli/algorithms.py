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
    for title, family in (("run", algorithms), ("creamfl", creamfl)):
        print(f"{title} --algorithm")
        for name in family.names():
            print(f"{name:17}{family.get(name).label:31}{family.get(name).source}")
        print()
    print("fedloge --algorithm")
    for name in methods.names():
        said = inspect.getdoc(sys.modules[methods.get(name).__module__]) or ""
        print(f"{name:17}{said.splitlines()[0]}")
