"""Scheduler and worker processes of this machine: a program that ``workers`` starts, and that knows
Dask alone.

Its standard input gives the number of workers and the keys of their connections; it answers with
the scheduler's address, or why there is none. The workers import the library when a run is handed
to them, and never the caller's program, so that scripts and notebooks need no guard. The program
ends with its workers when its input ends, which the operating system sees to however the caller
ends.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import sys
from contextlib import ExitStack, suppress
from tempfile import TemporaryDirectory
from typing import Any

import dask
from distributed import LocalCluster
from distributed.security import Security

_CONFIG = {
    "distributed.scheduler.allowed-failures": (
        0
    ),  # the caller counts them, and knows which checkpoint is the last
    "distributed.nanny.pre-spawn-environ": {},  # threads and memory as in the caller
    "distributed.worker.profile.enabled": False,
}


def main() -> None:
    """Serve until the caller closes the input."""
    given = json.loads(sys.stdin.readline() or '{"workers": 0, "security": {}}')
    dask.config.set(_CONFIG)
    workers: dict[str, Any] = {
        "n_workers": given["workers"],
        "threads_per_worker": 1,
        "memory_limit": 0,
        "silence_logs": logging.CRITICAL,
    }
    place: dict[str, Any] = {
        "host": "127.0.0.1",
        "dashboard_address": "127.0.0.1:0",
        "security": Security(**given["security"]),
    }
    with ExitStack() as stack:
        try:
            scratch = stack.enter_context(TemporaryDirectory())
            cluster = stack.enter_context(LocalCluster(local_directory=scratch, **workers, **place))
        except Exception as error:
            # Memory for semaphores or room for files is missing: each library has its own error.
            return _answer(str(error))
        _answer(cluster.scheduler_address)
        sys.stdin.read()
        for nanny in cluster.workers.values():
            nanny.close_gracefully()  # it starts no other worker
        for worker in multiprocessing.active_children():
            worker.kill()  # in the middle of a round


def _answer(text: str) -> None:
    with suppress(BrokenPipeError):  # the caller was interrupted in the meantime
        os.write(sys.stdout.fileno(), f"{' '.join(text.split())}\n".encode())


if __name__ == "__main__":
    main()
