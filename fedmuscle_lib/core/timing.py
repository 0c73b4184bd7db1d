"""Seconds of calls whose rounds alternate, so that a busy machine touches all alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from statistics import median

import torch

_SHORT = 0.005  # seconds below which a round repeats a call


def alternate(
    calls: Mapping[str, Callable[[], object]], rounds: int, patience: float, device: str
) -> dict[str, float]:
    """Median seconds of each call over so many rounds, or fewer where they last longer than
    ``patience``; a first one does not count.
    """
    repeats = {
        name: max(1, round(_SHORT / max(1e-6, seconds(call, device))))
        for name, call in calls.items()
    }
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in rounds_of(rounds, patience):
        for name, call in calls.items():
            times[name].append(seconds(call, device, repeats[name]))
    return {name: median(values) for name, values in times.items()}


def rounds_of(most: int, patience: float, fewest: int = 1) -> Iterator[int]:
    """Numbers of rounds from 0; after ``patience`` seconds no further one begins, but for the
    ``fewest``.
    """
    end = time.perf_counter() + patience
    for done in range(most):
        if done >= fewest and time.perf_counter() > end:
            return
        yield done


def seconds(call: Callable[[], object], device: str, repeats: int = 1) -> float:
    """Seconds of a call, the mean of so many."""
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)
    return (time.perf_counter() - start) / repeats
