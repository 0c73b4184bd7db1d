"""What the library's computations cost beside the forms they replace; ``python -m fedmuscle_lib bench`` prints these tables."""

from __future__ import annotations

import copy
import json
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd
import torch
from torch import Tensor
from torch.nn.functional import normalize
from torch.nn.utils.memory_format import convert_conv2d_weight_memory_format
from torch.profiler import ProfilerActivity, profile

from fedmuscle_lib.client import Client
from fedmuscle_lib.experiment import build
from fedmuscle_lib.models import UserModel
from fedmuscle_lib.muscle import make_reply, muscle_loss
from fedmuscle_lib.muscle.reference import muscle_loss_dense
from fedmuscle_lib.runs import torch_threads
from fedmuscle_lib.settings import Settings

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # torch's profiler would write two lines a cell

_DENSE_TENSORS = 6  # tensors of b^(m+1) entries that the dense form and its graph hold at once
_LONGEST = 2e10  # terms of the sum, b^(m+1), beyond which one call takes many seconds on a few cores
_PATIENCE = 10.0  # seconds after which a cell begins no further round


def bench_loss(
    members: Sequence[int] = (1, 2, 3, 4, 5),
    batches: Sequence[int] = (16, 32, 48, 64, 128),
    *,
    dim: int = 256,
    rounds: int = 7,
    threads: int = 2,
    device: str = "cpu",
    seed: int = 0,
    dense_limit_gb: float = 4.0,
    verbose: bool = True,
) -> pd.DataFrame:
    """Forward and backward of the Muscle loss, the original code's dense form and the library's side by side.

    Both run in this process on the same inputs, in rounds that alternate between them; times are medians over rounds. Memory is the
    peak of what torch's allocator holds during one call beyond the inputs.

    Args:
        members: values of M, the other users.
        batches: values of B.
        dim: d.
        rounds: alternations, fewer for cells that take long; a round repeats a short call until it lasts 5 ms.
        threads: torch's threads while this runs.
        device: where.
        seed: of the inputs.
        dense_limit_gb: the dense form is not run where its tensors would need more.
        verbose: print the table.

    Returns:
        One row a cell: m, b, dense_ms, library_ms, speedup, dense_mb, library_mb, memory_ratio, note.
    """
    with torch_threads(threads):
        rows = [_loss_cell(m, b, dim, rounds, device, seed, dense_limit_gb) for m in members for b in batches]
    table = pd.DataFrame(rows)
    if verbose:
        print(f"Muscle loss, forward + backward, d = {dim}, {device}, {threads} threads, median of up to {rounds} rounds")
        print(table.to_string(index=False, na_rep="-", float_format=_three_digits))
    return table


def bench_step(settings: Settings | None = None, *, rounds: int = 15, verbose: bool = True) -> pd.DataFrame:
    """One alignment step of each user, by the procedure of the original code's README and by the library's, side by side.

    The README encodes the batch twice, first without gradient for what is sent, and differentiates through the dense loss; the
    library keeps the one forward pass and takes the gradient reply; it computes in the settings' precision, the README in float32.
    Both end with the same AdamW step.

    Args:
        settings: whose users, models, batch size and M; the profile ``mini`` by default.
        rounds: alternations, fewer for users whose steps take long; times are medians over them.
        verbose: print the table.

    Returns:
        One row a user: user, model, parameters_m (millions in the backbone), forward_ms (of one encoding), loss_ms (of a reply),
        local_ms (one step of local training), readme_ms, library_ms, speedup; gflop and library_mb are of a step of the library:
        floating-point operations by torch's counter, and peak memory beyond model and data. local_again_ms is a local step that
        computes the frozen part again, on contiguous tensors, and local_speedup its ratio to local_ms; head_ms, head_again_ms and
        head_speedup are those of a step of the head alone. states_mb is what is kept of the user's training samples.
    """
    settings = settings or Settings()
    with torch_threads(settings.threads):
        settings = settings.model_copy(update={"public_size": settings.public_batch})  # one batch is all that is looked at
        clients, heads = (build(settings).clients for _ in range(2))
        rows = [
            _step_row(client, settings, rounds) | _kept_row(client, head, settings, rounds)
            for client, head in zip(clients, heads, strict=True)
        ]
    table = pd.DataFrame(rows)
    if verbose:
        print(f"One alignment step, B = {settings.public_batch}, M = {settings.others}, {settings.device}, {settings.threads} thread(s)")
        print(table.to_string(index=False, float_format=_three_digits))
        whole = table.library_ms.sum()
        forward, loss = (table[name].sum() / whole for name in ("forward_ms", "loss_ms"))
        print(f"all users together: {table.readme_ms.sum() / whole:.2f} times as fast")
        print(f"of a step: forward pass {forward:.0%}, the server's reply {loss:.0%}, backward pass and AdamW {1 - forward - loss:.0%}")
        kept, head = (table[f"{name}_again_ms"].sum() / table[f"{name}_ms"].sum() for name in ("local", "head"))
        print(f"with what is frozen computed once: a local step {kept:.1f} times as fast, one of the head alone {head:.1f} times")
    return table


def _step_row(client: Client, settings: Settings, rounds: int) -> dict:
    rows = torch.arange(settings.public_batch)
    local = torch.arange(min(len(client.train), settings.batch_size))
    images = client.public[rows]
    others = normalize(torch.randn(settings.others, len(rows), settings.proj_dim, device=settings.device), dim=-1)  # (m, b, d)
    optimizer = torch.optim.AdamW(
        client.model.representation_parameters(), lr=settings.of(client.user, "lr"), weight_decay=settings.weight_decay, fused=True
    )

    def forward() -> None:
        with torch.no_grad():
            client.represent(rows)

    def readme() -> None:
        client.model.precision = "float32"
        with torch.no_grad():
            client.model.represent(images)
        loss = muscle_loss_dense(client.model.represent(images), others)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        client.model.precision = settings.precision

    def library() -> None:
        client.align(make_reply("gradient", client.represent(rows), others))

    calls: dict[str, Callable[[], object]] = {
        "forward": forward,
        "loss": lambda: make_reply("gradient", others[0], others),
        "local": lambda: client.fit_batch(local),
        "readme": readme,
        "library": library,
    }
    library()  # with torch's counter on, which later steps of this shape are spared
    gflop = client.meter.total / 1e9
    times = {f"{name}_ms": seconds * 1e3 for name, seconds in _alternate(calls, rounds, settings.device).items()}
    return {
        "user": client.user.number,
        "model": client.user.model,
        "parameters_m": sum(p.numel() for p in client.model.backbone.parameters()) / 1e6,
        **times,
        "speedup": times["readme_ms"] / times["library_ms"],
        "gflop": gflop,
        "library_mb": peak_bytes(library, settings.device) / 1e6,
    }


def _kept_row(client: Client, head: Client, settings: Settings, rounds: int) -> dict:
    """A local step with the frozen part computed once beside one that computes it again, of all that is adapted and of the head alone."""
    rows = torch.arange(min(len(client.train), settings.batch_size))
    inputs, targets = client.train.inputs[rows], client.train.targets[rows]
    plain = copy.deepcopy(client.model)
    plain.memory_format = torch.contiguous_format
    convert_conv2d_weight_memory_format(plain, torch.contiguous_format)
    plain_head = copy.deepcopy(plain)
    plain_head.freeze_representation()
    calls: dict[str, Callable[[], object]] = {
        "local": lambda: client.fit_batch(rows),
        "local_again": _again(plain, client, inputs, targets, settings.of(client.user, "lr")),
    }
    if list(head.model.head.parameters()):  # a language model has no head of its own
        head.freeze_representation()
        calls |= {
            "head": lambda: head.fit_batch(rows),
            "head_again": _again(plain_head, client, inputs, targets, settings.of(client.user, "lr")),
        }
    for call in calls.values():
        call()  # computes what is frozen
    times = {f"{name}_ms": seconds * 1e3 for name, seconds in _alternate(calls, rounds, settings.device).items()}
    ratios = {f"{name}_speedup": times[f"{name}_again_ms"] / times[f"{name}_ms"] for name in ("local", "head") if name in calls}
    return times | ratios | {"states_mb": client.states_nbytes / 1e6}


def _again(model: UserModel, client: Client, inputs: Tensor, targets: Tensor, lr: float) -> Callable[[], None]:
    """A local step of ``model`` that computes the frozen part too."""
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=lr, fused=True)

    def step() -> None:
        optimizer.zero_grad()
        client.task.loss(model(inputs), targets).backward()
        optimizer.step()

    return step


def _loss_cell(m: int, b: int, dim: int, rounds: int, device: str, seed: int, dense_limit_gb: float) -> dict:
    row: dict[str, Any] = {"m": m, "b": b, "dense_ms": None, "library_ms": None, "speedup": None}
    row |= {"dense_mb": None, "library_mb": None, "memory_ratio": None, "note": ""}
    if b ** (m + 1) > _LONGEST:
        return row | {"note": "too long"}
    torch.manual_seed(seed)
    anchor = normalize(torch.randn(b, dim, device=device), dim=-1).requires_grad_()  # (b, d)
    others = normalize(torch.randn(m, b, dim, device=device), dim=-1)  # (m, b, d)
    calls: dict[str, Callable[[], object]] = {
        "library": lambda: _step(muscle_loss, anchor, others),
        "dense": lambda: _step(muscle_loss_dense, anchor, others),
    }
    needed_gb = _DENSE_TENSORS * b ** (m + 1) * anchor.element_size() / 1e9
    if needed_gb > dense_limit_gb:
        del calls["dense"]
        row["note"] = f"dense cannot run: {needed_gb:.3g} GB"
    for name, call in calls.items():
        row[f"{name}_mb"] = peak_bytes(call, device) / 1e6
    for name, seconds in _alternate(calls, rounds, device).items():
        row[f"{name}_ms"] = seconds * 1e3
    if "dense" in calls:
        row["speedup"] = row["dense_ms"] / row["library_ms"]
        row["memory_ratio"] = row["dense_mb"] / row["library_mb"]
    return row


def _step(loss: Callable[[Tensor, Tensor], Tensor], anchor: Tensor, others: Tensor) -> None:
    anchor.grad = None
    loss(anchor, others).backward()


def peak_bytes(call: Callable[[], object], device: str = "cpu") -> int:
    """Most bytes that torch's allocator held at once during ``call``, beyond those it held before."""
    if device.startswith("cuda"):
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        call()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        call()
    held = peak = 0
    for change in _allocations(profiler):
        held += change
        peak = max(peak, held)
    return peak


def _allocations(profiler: profile) -> list[int]:
    """Bytes taken (> 0) and given back (< 0), in order. Only the trace file has every event."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    memory = [event for event in events if event.get("name") == "[memory]"]
    return [int(event["args"]["Bytes"]) for event in sorted(memory, key=lambda event: event["ts"])]


def _alternate(calls: dict[str, Callable[[], object]], rounds: int, device: str) -> dict[str, float]:
    """Median seconds of each call, rounds alternating between them so that a busy machine touches all alike."""
    repeats = {name: max(1, round(0.005 / max(1e-6, _seconds(call, 1, device)))) for name, call in calls.items()}
    times: dict[str, list[float]] = {name: [] for name in calls}
    end = time.perf_counter() + _PATIENCE
    for done in range(rounds):
        if done and time.perf_counter() > end:
            break
        for name, call in calls.items():
            times[name].append(_seconds(call, repeats[name], device))
    return {name: median(values) for name, values in times.items()}


def _seconds(call: Callable[[], object], repeats: int, device: str) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)
    return (time.perf_counter() - start) / repeats


def _three_digits(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
