"""Benchmarks of the library's computations beside the forms they replace; ``python -m fedmuscle_lib
bench`` prints these tables.
"""

from __future__ import annotations

import copy
import json
import math
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from peft.tuners import lora
from scipy.stats import ttest_1samp
from torch import Tensor
from torch.nn import Parameter
from torch.nn.functional import normalize
from torch.nn.utils.memory_format import convert_conv2d_weight_memory_format
from torch.profiler import ProfilerActivity, profile
from transformers.models.segformer.modeling_segformer import SegformerDecodeHead

from fedmuscle_lib.core.timing import alternate, rounds_of, seconds
from fedmuscle_lib.core.torch_state import fixed_state
from fedmuscle_lib.fedmuscle import algorithms
from fedmuscle_lib.fedmuscle.algorithms import Federation
from fedmuscle_lib.fedmuscle.algorithms.directed import predictability
from fedmuscle_lib.fedmuscle.build import build
from fedmuscle_lib.fedmuscle.client import Client
from fedmuscle_lib.fedmuscle.messages import Batch, CountedReply
from fedmuscle_lib.fedmuscle.objectives import gramian
from fedmuscle_lib.fedmuscle.server import Server
from fedmuscle_lib.fedmuscle.settings import Settings
from fedmuscle_lib.models import FrozenStates, State, UserModel
from fedmuscle_lib.models.lora import Merged
from fedmuscle_lib.models.maps import FeatureMaps
from fedmuscle_lib.muscle import make_reply, muscle_loss
from fedmuscle_lib.muscle.reference import muscle_loss_dense
from fedmuscle_lib.report.statistics import CONFIDENCE

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # torch's profiler would write two lines a cell

_DENSE_TENSORS = 6  # tensors of b^(m+1) entries that the dense form and its graph hold at once
# terms of the sum, b^(m+1), beyond which one call takes many seconds on a few cores
_LONGEST = 2e10
_MEASURED = (
    "dense_ms",
    "library_ms",
    "gramian_ms",
    "speedup",
    "dense_mb",
    "library_mb",
    "memory_ratio",
)
_PATIENCE = 10.0  # seconds after which a cell begins no further round
_PAIRS_PATIENCE = 300.0  # seconds after which no further pair of rounds begins


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
) -> pd.DataFrame:
    """Print forward and backward of the Muscle loss, the original code's dense form and the
    library's, and of the Gramian loss.

    They run in this process on the same inputs, in rounds that alternate between them; times are
    medians over rounds. Memory is the peak of what torch's allocator holds during one call beyond
    the inputs.

    Args:
        members: values of M, the other users.
        batches: values of B.
        dim: d.
        rounds: alternations, fewer for cells that take long; a round repeats a short call until it
            lasts 5 ms.
        threads: torch's threads while this runs.
        device: where.
        seed: of the inputs.
        dense_limit_gb: the dense form is not run where its tensors would need more.

    Returns:
        One row a cell: m, b, dense_ms, library_ms, gramian_ms, speedup (dense over library),
            dense_mb, library_mb, memory_ratio, note.
    """
    with fixed_state(threads):
        rows = [
            _loss_cell(m, b, dim, rounds, device, seed, dense_limit_gb)
            for m in members
            for b in batches
        ]
    print(
        f"Muscle loss, forward + backward, d = {dim}, {device}, {threads} threads, median of up to"
        f" {rounds} rounds"
    )
    return _printed(pd.DataFrame(rows, columns=["m", "b", *_MEASURED, "note"]).fillna({"note": ""}))


def bench_step(settings: Settings, *, rounds: int = 15) -> pd.DataFrame:
    """Print one alignment step of each user, by the procedure of the original code's README and by
    the library's, side by side.

    The README encodes the batch twice, first without gradient for what is sent, and differentiates
    through the dense loss; the library keeps the one forward pass and takes the gradient reply; it
    computes in the settings' precision, the README in float32. Both end with the same AdamW step.

    Args:
        settings: whose users, models, batch size and M.
        rounds: alternations, fewer for users whose steps take long; times are medians over them.

    Returns:
        One row a user: user, model, parameters_m (millions in the backbone), forward_ms (of one
            encoding), loss_ms (of a reply),
        local_ms (one step of local training), readme_ms, library_ms, speedup; gflop and library_mb
        are of a step of the library: floating-point operations by torch's counter, and peak memory
        beyond model and data.
    """
    settings = _of_one_batch(settings)
    with fixed_state(settings.threads):
        table = pd.DataFrame(
            [_step_row(client, settings, rounds) for client in build(settings).clients]
        )
    print(
        f"One alignment step, B = {settings.public_batch}, M = {settings.others},"
        f" {settings.device}, {settings.threads} thread(s)"
    )
    total = _printed(table).sum()
    forward, loss = total.forward_ms / total.library_ms, total.loss_ms / total.library_ms
    print(f"all users together: {total.readme_ms / total.library_ms:.2f} times as fast")
    print(
        f"of a step: forward pass {forward:.0%}, the server's reply {loss:.0%}, backward pass and"
        f" AdamW {1 - forward - loss:.0%}"
    )
    return table


def bench_order(
    users: Sequence[int] = (10, 30, 100, 300, 1000),
    *,
    samples: int,
    dim: int,
    threads: int,
    device: str,
    seed: int,
) -> pd.DataFrame:
    """Print what it costs the server of directed peers to measure who predicts whom, once on random
    representations.

    Args:
        users: how many, each in a row of its own.
        samples: public samples.
        dim: d.
        threads: torch's threads.
        device: where the server computes.
        seed: of the representations.

    Returns:
        One row a number of users: users, seconds, ms_a_pair.
    """
    rows = []
    with fixed_state(threads):
        for n in users:
            z = torch.randn(n, samples, dim, generator=torch.Generator().manual_seed(seed))
            took = seconds(
                partial(predictability, z.to(device), torch.arange(samples, device=device)), device
            )
            rows.append({"users": n, "seconds": took, "ms_a_pair": 1000 * took / (n * (n - 1))})
    print(
        f"Order of directed peers, {samples} public samples, d = {dim}, {device}, {threads}"
        " thread(s)"
    )
    return _printed(pd.DataFrame(rows))


class Trusting(Server):
    """A server without checks of alignment steps: it keeps and hands on what users send as it came,
    and measures and counts nothing.
    """

    def open(self, batch: Batch) -> None:
        self._received = {}

    def receive(self, user: int, batch: Batch, z: Tensor) -> None:
        self._received[user] = z

    def current(self, user: int) -> Tensor:
        return self._received[user]

    def send(self, user: int, reply: CountedReply) -> CountedReply:
        return reply

    def judge(self, round: int) -> None:
        pass


def bench_checks(settings: Settings, *, pairs: int = 30) -> pd.DataFrame:
    """Print what the library's checks add to the alignment steps of a round
    (:func:`cost_of_checks`), which run with them and without.

    A round is one CL epoch of all users over the whole public set. With checks, the server checks,
    copies, counts and compares what users send in each batch; at the end it judges them, and each
    client looks whether its weights are finite. Without checks, the same clients take the same
    steps with a :class:`Trusting` server.

    Args:
        settings: whose users, models, public set, batch size, M and temperatures.
        pairs: how many, fewer for rounds that take long; which round comes first changes from pair
            to pair.

    Returns:
        One row a pair: checked_ms, trusting_ms, of a step of all users.
    """
    settings = settings.model_copy(update={"cl_epochs": 1})
    with fixed_state(settings.threads):
        federation = build(settings)
        clients, server = federation.clients, federation.server
        trusting = Federation(
            clients, Trusting(server.users, server.others, server.dim, server.address)
        )
        algorithm = algorithms.get(settings.algorithm)(settings)
        batches = len(list(algorithm.public_batches(0)))

        def checked_round() -> None:
            algorithm.communicate(federation, 0)  # always the same round
            for client in clients:
                client.check_weights()

        calls: dict[str, Callable[[], object]] = {
            "checked_ms": checked_round,
            "trusting_ms": lambda: algorithm.communicate(trusting, 0),
        }
        for call in calls.values():
            call()  # with torch's counter on
        rows = []
        for pair in rounds_of(pairs, _PAIRS_PATIENCE, fewest=2):
            in_turn = list(calls) if pair % 2 else list(calls)[::-1]
            rows.append(
                {name: seconds(calls[name], settings.device) * 1e3 / batches for name in in_turn}
            )
    table = pd.DataFrame(rows, columns=list(calls))
    cost, low, high = cost_of_checks(table)
    print(
        "a step of all users without the checks of server and clients:"
        f" {table.trusting_ms.median():.3g} ms; what these add:"
    )
    interval = f"{CONFIDENCE:.0%} interval [{low:+.1%}, {high:+.1%}]"
    print(
        f"{cost:+.1%}, {interval}, {len(table)} interleaved pairs of rounds, {batches} batches each"
    )
    return table


def cost_of_checks(pairs: pd.DataFrame) -> tuple[float, float, float]:
    """Return what the checks add to a round's time, as a share of it: the mean over pairs, and the
    ends of its Student t interval.

    Means and interval are of the logarithms of the pairs' ratios.

    Args:
        pairs: two at least, as :func:`bench_checks` returns them.
    """
    ratios = np.log(pairs.checked_ms / pairs.trusting_ms)
    interval = ttest_1samp(ratios, 0).confidence_interval(CONFIDENCE)
    cost, low, high = np.expm1([ratios.mean(), *interval]).tolist()
    return cost, low, high


def bench_local(settings: Settings, *, rounds: int = 15) -> pd.DataFrame:
    """Print a local step of each user, and the same step with one of its forms replaced by the
    plain one, side by side.

    - "frozen once": the library computes once what training never changes
      (``fedmuscle_lib.models.frozen``); the plain step computes it too, on contiguous tensors.
    - "head alone": the same where only the head is trained.
    - "LoRA": small layers take one product (``fedmuscle_lib.models.lora``); the plain ones are
      peft's.
    - "decoder": products are taken where the maps are small (``fedmuscle_lib.models.decoder``); the
      plain one is transformers'.

    Args:
        settings: whose users, models and batch size.
        rounds: alternations, fewer for users whose steps take long; times are medians over them.

    Returns:
        One row a user and form, of the forms that its model has: user, model, form, library_ms,
            plain_ms, speedup; states_mb is what is
        kept of all of the user's training samples, NaN where nothing is.
    """
    settings = _of_one_batch(settings)
    with fixed_state(settings.threads):
        table = pd.DataFrame(
            [
                row
                for client in build(settings).clients
                for row in _local_rows(client, settings, rounds)
            ]
        )
    print(
        f"One local step, B = {settings.batch_size}, {settings.device}, {settings.threads}"
        " thread(s)"
    )
    for form, rows in _printed(table).groupby("form", sort=False):
        print(
            f"{form}: the steps of {len(rows)} users"
            f" {rows.plain_ms.sum() / rows.library_ms.sum():.2f} times as fast"
        )
    return table


def _of_one_batch(settings: Settings) -> Settings:
    """The settings on a public set of one batch, which is all that is looked at."""
    return settings.model_copy(update={"public_size": settings.public_batch, "cl_epochs": 1})


def _step_row(client: Client, settings: Settings, rounds: int) -> dict:
    rows = torch.arange(settings.public_batch)
    local = torch.arange(min(len(client.train), settings.batch_size))
    images = client.public[rows]
    others = normalize(
        torch.randn(settings.others, len(rows), settings.proj_dim, device=settings.device), dim=-1
    )  # (m, b, d)
    optimizer = _optimizer(client, settings, client.model.representation_parameters())

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
    times = {
        f"{name}_ms": median * 1e3
        for name, median in alternate(calls, rounds, _PATIENCE, settings.device).items()
    }
    parameters = sum(p.numel() for p in client.model.backbone.parameters()) / 1e6
    speedup, peak = (
        times["readme_ms"] / times["library_ms"],
        peak_bytes(library, settings.device) / 1e6,
    )
    whose = {"user": client.user.number, "model": client.user.model, "parameters_m": parameters}
    return whose | times | {"speedup": speedup, "gflop": gflop, "library_mb": peak}


def _local_rows(client: Client, settings: Settings, rounds: int) -> Iterator[dict[str, Any]]:
    for form, library, plain, nbytes in _forms(client, settings):
        times = alternate(
            {"library_ms": library, "plain_ms": plain}, rounds, _PATIENCE, settings.device
        )
        whose = {"user": client.user.number, "model": client.user.model, "form": form}
        speedup, kept = (
            times["plain_ms"] / times["library_ms"],
            nbytes * len(client.train) / 1e6 or math.nan,
        )
        yield (
            whose
            | {name: median * 1e3 for name, median in times.items()}
            | {"speedup": speedup, "states_mb": kept}
        )


def _forms(
    client: Client, settings: Settings
) -> Iterator[tuple[str, Callable[[], None], Callable[[], None], float]]:
    """The forms of a client's local step: each by name, the library's step, the plain one, and
    bytes of a sample's frozen state.
    """
    batch = slice(min(len(client.train), settings.batch_size))
    inputs, targets = client.train.inputs[batch], client.train.targets[batch]

    def step(
        model: UserModel,
        read: State | Tensor,
        outputs: Callable[[State | Tensor], Tensor] | None = None,
    ) -> Callable[[], None]:
        optimizer = _optimizer(client, settings, [p for p in model.parameters() if p.requires_grad])

        def once() -> None:
            optimizer.zero_grad()
            client.task.loss((outputs or model)(read), targets).backward()
            optimizer.step()

        return once

    model = client.model
    kept = FrozenStates().of(model, inputs)
    read = kept.take(slice(None))
    if kept.nbytes:
        yield (
            "frozen once",
            step(model, read),
            step(_contiguous(model), inputs),
            kept.nbytes / len(inputs),
        )
    if list(model.head.parameters()):  # a language model has no head of its own
        head = _copied(model)
        head.freeze_representation()
        kept = FrozenStates().of(head, inputs)
        yield (
            "head alone",
            step(head, kept.take(slice(None))),
            step(_contiguous(head), inputs),
            kept.nbytes / len(inputs),
        )
    plain = _copied(model)
    if merged := [layer for layer in plain.modules() if isinstance(layer, Merged)]:
        for layer in merged:
            layer.__class__ = lora.Linear  # type: ignore[assignment]
        yield "LoRA", step(model, read), step(plain, read), 0
    if isinstance(model, FeatureMaps) and isinstance(model.head, SegformerDecodeHead):
        yield (
            "decoder",
            step(model, read),
            step(model, read, lambda seen: model.head(model.maps(seen))),
            0,
        )


def _optimizer(
    client: Client, settings: Settings, parameters: list[Parameter]
) -> torch.optim.AdamW:
    return torch.optim.AdamW(
        parameters,
        lr=settings.of(client.user, "lr"),
        weight_decay=settings.weight_decay,
        fused=True,
    )


def _copied(model: UserModel) -> UserModel:
    """A copy that shares the frozen weights."""
    return copy.deepcopy(model, {id(p): p for p in model.parameters() if not p.requires_grad})


def _contiguous(model: UserModel) -> UserModel:
    """A copy with contiguous tensors in its convolutions."""
    plain = copy.deepcopy(model)
    plain.memory_format = torch.contiguous_format
    convert_conv2d_weight_memory_format(plain, torch.contiguous_format)
    return plain


def _loss_cell(
    m: int, b: int, dim: int, rounds: int, device: str, seed: int, dense_limit_gb: float
) -> dict:
    row: dict[str, Any] = {"m": m, "b": b}
    if b ** (m + 1) > _LONGEST:
        return row | {"note": "too long"}
    torch.manual_seed(seed)
    anchor = normalize(torch.randn(b, dim, device=device), dim=-1).requires_grad_()  # (b, d)
    others = normalize(torch.randn(m, b, dim, device=device), dim=-1)  # (m, b, d)
    calls: dict[str, Callable[[], object]] = {
        "library": lambda: _step(muscle_loss, anchor, others),
        "gramian": lambda: _step(gramian, anchor, others),
        "dense": lambda: _step(muscle_loss_dense, anchor, others),
    }
    needed_gb = _DENSE_TENSORS * b ** (m + 1) * anchor.element_size() / 1e9
    if needed_gb > dense_limit_gb:
        del calls["dense"]
        row["note"] = f"dense cannot run: {needed_gb:.3g} GB"
    row |= {f"{name}_mb": peak_bytes(call, device) / 1e6 for name, call in calls.items()}
    row |= {
        f"{name}_ms": median * 1e3
        for name, median in alternate(calls, rounds, _PATIENCE, device).items()
    }
    if "dense" in calls:
        row["speedup"] = row["dense_ms"] / row["library_ms"]
        row["memory_ratio"] = row["dense_mb"] / row["library_mb"]
    return row


def _step(loss: Callable[[Tensor, Tensor], Tensor], anchor: Tensor, others: Tensor) -> None:
    anchor.grad = None
    loss(anchor, others).backward()


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
    memory = sorted(
        (event for event in events if event.get("name") == "[memory]"),
        key=lambda event: event["ts"],
    )
    return max(
        accumulate((int(event["args"]["Bytes"]) for event in memory), initial=0)
    )  # taken (> 0) and given back (< 0)


def _printed(table: pd.DataFrame) -> pd.DataFrame:
    print(
        table.to_string(
            index=False,
            na_rep="-",
            float_format=lambda value: f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}",
        )
    )
    return table
