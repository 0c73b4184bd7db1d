"""``algorithms``: what there is."""

from __future__ import annotations

from fedmuscle_lib import algorithms


def command() -> None:
    """List the algorithms: name, label, and whether it is the paper's, a control or ours."""
    for name in algorithms.names():
        algorithm = algorithms.get(name)
        print(f"{name:17}{algorithm.label:30}{algorithm.source}")
