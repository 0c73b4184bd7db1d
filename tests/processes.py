"""Processes that a test left to themselves: which there are, and whether they end."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def children(parent: int, program: str) -> list[int]:
    """Living processes that ``parent`` started and whose command line names ``program``."""
    pids = [int(folder.name) for folder in Path("/proc").glob("[0-9]*")]
    return [
        pid
        for pid in pids
        if (stat := _stat(pid))
        and int(stat[1]) == parent
        and alive(pid)
        and program in _command_line(pid)
    ]


def alive(pid: int) -> bool:
    """Whether the process runs; one that ended and was not yet waited for does not."""
    stat = _stat(pid)
    return bool(stat) and stat[0] not in "ZX"


def eventually(condition: Callable[[], Any], seconds: float = 60) -> Any:
    """What ``condition`` gives when it holds, or when the time is up."""
    deadline = time.monotonic() + seconds
    while not (held := condition()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return held


def _stat(pid: int) -> list[str]:
    """State, parent and the rest; empty when there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
