"""States of torch that a caller may be in: whatever they are, a computation of ours gives the same
numbers.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch
from hostile.kind import Case, Kind
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from fedmuscle_lib.core.torch_state import fixed_state


@contextmanager
def _set(read: Callable[[], Any], write: Callable[[Any], Any], value: Any) -> Iterator[None]:
    before = read()
    write(value)
    try:
        yield
    finally:
        write(before)


@contextmanager
def _flushed() -> Iterator[None]:
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


CALLERS: dict[str, Callable[[], AbstractContextManager]] = {
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "no_grad": torch.no_grad,
    "inference mode": torch.inference_mode,
    "float64": lambda: _set(torch.get_default_dtype, torch.set_default_dtype, torch.float64),
    "another device": lambda: torch.device("meta"),
    "medium precision": lambda: _set(
        lambda: "highest", torch.set_float32_matmul_precision, "medium"
    ),
    "precision of products": lambda: _set(
        lambda: "none",
        lambda to: torch._C._set_fp32_precision_setter("mkldnn", "matmul", to),
        "bf16",
    ),
    "no oneDNN": lambda: _set(torch._C._get_mkldnn_enabled, torch._C._set_mkldnn_enabled, False),
    "plain attention": lambda: sdpa_kernel(SDPBackend.MATH),
    "no denormals": _flushed,
    "threads": lambda: _set(
        torch.get_num_threads, torch.set_num_threads, torch.get_num_threads() + 1
    ),
}


def numbers() -> dict[str, Tensor]:
    """A value and a gradient through products, a convolution and attention, and a denormal
    number.
    """
    draw = torch.Generator().manual_seed(0)
    images = torch.randn(2, 3, 32, 32, generator=draw)
    convolution, attention = (
        nn.Conv2d(3, 16, 3),
        nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True),
    )
    with torch.no_grad():
        for parameter in (*convolution.parameters(), *attention.parameters()):
            parameter.copy_(torch.randn(parameter.shape, generator=draw) / 4)
    out = attention(convolution(images).flatten(2).transpose(1, 2))
    (out @ out.transpose(1, 2)).square().mean().backward()
    assert convolution.weight.grad is not None
    return {
        "value": out.detach(),
        "gradient": convolution.weight.grad,
        "denormal": torch.tensor([1e-310], dtype=torch.float64) * 0.5,
    }


@cache
def right() -> dict[str, Tensor]:
    with fixed_state(1):
        return numbers()


def _case(draws: random.Random) -> Case:
    return Case(json.dumps(draws.sample([*CALLERS], draws.randrange(len(CALLERS) + 1))).encode())


def _read(folder: Path) -> None:
    wanted = right()
    with ExitStack() as stack:
        for name in json.loads((folder / "callers.json").read_text()):
            stack.enter_context(CALLERS[name]())
        with fixed_state(1):
            found = numbers()
    assert all(torch.equal(found[name], wanted[name]) for name in wanted), (
        "the caller's state is in the numbers"
    )


KIND = Kind(file="callers.json", prepare=lambda folder: None, case=_case, read=_read, refusals=())
