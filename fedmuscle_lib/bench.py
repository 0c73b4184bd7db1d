"""Benchmarks of the library's computations beside the forms they replace; ``python -m fedmuscle_lib
bench`` prints these tables.
"""

from __future__ import annotations

import copy
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd
import torch
from peft.tuners import lora
from torch import Tensor
from torch.nn.functional import normalize
from torch.nn.utils.memory_format import convert_conv2d_weight_memory_format
from torch.profiler import ProfilerActivity, profile
from torch.utils.benchmark import Timer

from fedmuscle_lib.core.torch_state import fixed_state
from fedmuscle_lib.fedmuscle.build import build
from fedmuscle_lib.fedmuscle.client import Client
from fedmuscle_lib.fedmuscle.objectives import gramian
from fedmuscle_lib.fedmuscle.settings import Settings
from fedmuscle_lib.models import FrozenStates, State, UserModel
from fedmuscle_lib.models.lora import Merged
from fedmuscle_lib.muscle import make_reply, muscle_loss
from fedmuscle_lib.muscle.reference import muscle_loss_dense

_DENSE_TENSORS = 6  # tensors of b^(m+1) entries that the dense form and its graph hold at once
_DENSE_BYTES = 4e9  # beyond which the dense form is not run
_LONGEST = 2e10  # terms of the sum, b^(m+1), beyond which one call takes many seconds
Calls = Mapping[str, Callable[[], object]]  # by name
Forms = Callable[[Client, Settings], Iterator[tuple[str, Calls]]]  # of a client's step, by name


def side_by_side(calls: Calls, threads: int, rounds: int = 7) -> dict[str, float]:
    """Return the median milliseconds of each call, as ``<name>_ms``.

    Rounds alternate between the calls, so that a busy machine slows all alike.
    """
    timers = {
        name: Timer("call()", globals={"call": call}, num_threads=threads)
        for name, call in calls.items()
    }
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, timer in timers.items():
            times[name].append(timer.blocked_autorange(min_run_time=0.02).median)
    return {f"{name}_ms": 1e3 * median(values) for name, values in times.items()}


def bench_loss(
    members: Sequence[int] = (1, 2, 3, 4, 5),
    batches: Sequence[int] = (16, 32, 48, 64, 128),
    *,
    dim: int = 256,
    rounds: int = 7,
    threads: int = 2,
    device: str = "cpu",
) -> pd.DataFrame:
    """Print forward and backward of the Muscle loss in the original code's dense form and in the
    library's, and of the Gramian loss.

    Memory is the peak of what torch's allocator holds during one call beyond the inputs.

    Args:
        members: values of M, the other users.
        batches: values of B.
        dim: d.
        rounds: alternations between the forms.
        threads: torch's threads while this runs.
        device: where.

    Returns:
        One row a cell: m, b, library_ms, gramian_ms, dense_ms, library_mb, gramian_mb, dense_mb,
            speedup (dense over library), memory_ratio. Numbers are missing where a form would need
            too much memory or time.
    """
    rows = []
    with fixed_state(threads):
        for m, b in [(m, b) for m in members for b in batches if b ** (m + 1) <= _LONGEST]:
            generator = torch.Generator().manual_seed(0)
            z = normalize(torch.randn(m + 1, b, dim, generator=generator), dim=-1).to(device)
            losses: dict[str, Callable[..., Tensor]] = {
                "library": muscle_loss,
                "gramian": gramian,
            }
            if _DENSE_TENSORS * b ** (m + 1) * z.element_size() <= _DENSE_BYTES:
                losses["dense"] = muscle_loss_dense
            anchor = z[0].requires_grad_()
            calls = {
                name: partial(_differentiate, loss, anchor, z[1:].detach())
                for name, loss in losses.items()
            }
            memory = {f"{name}_mb": peak_bytes(call, device) / 1e6 for name, call in calls.items()}
            rows.append({"m": m, "b": b} | side_by_side(calls, threads, rounds) | memory)
    table = pd.DataFrame(rows)
    if "dense_ms" in table:
        table["speedup"] = table.dense_ms / table.library_ms
        table["memory_ratio"] = table.dense_mb / table.library_mb
    print(f"Muscle loss, forward + backward, d = {dim}, {device}, {threads} thread(s)")
    return _printed(table)


def bench_step(settings: Settings, *, rounds: int = 7) -> pd.DataFrame:
    """Print one alignment step of each user, by the procedure of the original code's README and by
    the library's.

    The README encodes the batch twice, first without gradient for what is sent, and differentiates
    through the dense loss; the library keeps the one forward pass and takes the gradient reply; it
    computes in the settings' precision, the README in float32. Both end with the same AdamW step.

    Args:
        settings: whose users, models, batch size and M.
        rounds: alternations between the forms.

    Returns:
        One row a user: user, model, form, forward_ms (of one encoding), loss_ms (of a reply),
        plain_ms (the README's procedure), library_ms, speedup.
    """
    return _of_users(settings, _alignment, rounds)


def bench_local(settings: Settings, *, rounds: int = 7) -> pd.DataFrame:
    """Print a local step of each user, and the same step with one of its forms replaced by the
    plain one.

    - "frozen once": the library computes once what training never changes
      (``fedmuscle_lib.models.frozen``); the plain step computes it too, on contiguous tensors.
    - "LoRA": small layers take one product (``fedmuscle_lib.models.lora``); the plain ones are
      peft's.

    Args:
        settings: whose users, models and batch size.
        rounds: alternations between the forms.

    Returns:
        One row a user and form, of the forms that its model has: user, model, form, library_ms,
            plain_ms, speedup.
    """
    return _of_users(settings, _local, rounds)


def _of_users(settings: Settings, forms: Forms, rounds: int) -> pd.DataFrame:
    """Print a row a user and form of a step; return the rows."""
    one_batch = {"public_size": settings.public_batch, "cl_epochs": 1}  # all that is looked at
    settings = settings.model_copy(update=one_batch)
    with fixed_state(settings.threads):
        table = pd.DataFrame(
            [
                {"user": client.user.number, "model": client.user.model, "form": form}
                | side_by_side(calls, settings.threads, rounds)
                for client in build(settings).clients
                for form, calls in forms(client, settings)
            ]
        )
    table["speedup"] = table.plain_ms / table.library_ms
    print(
        f"One step, B = {settings.batch_size}, of public data {settings.public_batch},"
        f" M = {settings.others}, {settings.device}, {settings.threads} thread(s)"
    )
    for form, total in _printed(table).groupby("form", sort=False).sum().iterrows():
        print(f"{form}: all users together {total.plain_ms / total.library_ms:.2f} times as fast")
    return table


def _differentiate(loss: Callable[..., Tensor], anchor: Tensor, others: Tensor) -> None:
    anchor.grad = None
    loss(anchor, others).backward()


def _alignment(client: Client, settings: Settings) -> Iterator[tuple[str, Calls]]:
    """An alignment step of a client in both forms, and two parts of it."""
    rows, images = torch.arange(settings.public_batch), client.public[: settings.public_batch]
    others = normalize(
        torch.randn(settings.others, len(rows), settings.proj_dim, device=settings.device), dim=-1
    )  # (m, b, d)
    optimizer = _optimizer(client, settings, client.model.representation_parameters())

    def readme() -> None:
        client.model.precision = "float32"
        with torch.no_grad():
            client.model.represent(images)
        loss = muscle_loss_dense(client.model.represent(images), others)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        client.model.precision = settings.precision

    yield (
        "alignment",
        {
            "forward": torch.no_grad()(lambda: client.represent(rows)),
            "loss": lambda: make_reply("gradient", others[0], others),
            "plain": readme,
            "library": lambda: client.align(make_reply("gradient", client.represent(rows), others)),
        },
    )


def _local(client: Client, settings: Settings) -> Iterator[tuple[str, Calls]]:
    """The forms of a client's local step: each by name, the library's step and the plain one."""
    batch = slice(min(len(client.train), settings.batch_size))
    inputs, targets = client.train.inputs[batch], client.train.targets[batch]

    def step(model: UserModel, read: State | Tensor) -> Callable[[], object]:
        optimizer = _optimizer(client, settings, [p for p in model.parameters() if p.requires_grad])

        def once() -> None:
            optimizer.zero_grad()
            client.task.loss(model(read), targets).backward()
            optimizer.step()

        return once

    model = client.model
    frozen = FrozenStates().of(model, inputs)
    read = frozen.take(slice(None))
    if frozen.flops:
        yield "frozen once", {"library": step(model, read), "plain": step(_plain(model), inputs)}
    frozen_weights = {id(p): p for p in model.parameters() if not p.requires_grad}
    pefts = copy.deepcopy(model, frozen_weights)  # which it shares
    if merged := [layer for layer in pefts.modules() if isinstance(layer, Merged)]:
        for layer in merged:
            layer.__class__ = lora.Linear  # type: ignore[assignment]
        yield "LoRA", {"library": step(model, read), "plain": step(pefts, read)}


def _optimizer(client: Client, settings: Settings, parameters: list[Any]) -> torch.optim.AdamW:
    lr = settings.of(client.user, "lr")
    return torch.optim.AdamW(parameters, lr=lr, weight_decay=settings.weight_decay, fused=True)


def _plain(model: UserModel) -> UserModel:
    """A copy with contiguous tensors in its convolutions."""
    plain = copy.deepcopy(model)
    plain.memory_format = torch.contiguous_format
    convert_conv2d_weight_memory_format(plain, torch.contiguous_format)
    return plain


def peak_bytes(call: Callable[[], object], device: str = "cpu") -> int:
    """Most bytes that torch's allocator held at once during ``call``, beyond those it held
    before.
    """
    if device.startswith("cuda"):
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        call()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        call()
    with tempfile.TemporaryDirectory() as folder:  # only the trace file has every event
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    memory = [event for event in events if event.get("name") == "[memory]"]
    memory.sort(key=lambda event: event["ts"])
    # taken (> 0) and given back (< 0)
    return max(accumulate((int(event["args"]["Bytes"]) for event in memory), initial=0))


def _printed(table: pd.DataFrame) -> pd.DataFrame:
    print(table.to_string(index=False, na_rep="-", float_format="{:.3g}".format))
    return table
