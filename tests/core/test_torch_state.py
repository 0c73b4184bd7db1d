"""Whatever the caller has told torch, what is computed in ``fixed_state`` is the same, and the
caller's state comes back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from fedmuscle_lib.core.torch_state import fixed_state


@contextmanager
def _set(write: Callable[[Any], Any], value: Any, before: Any) -> Iterator[None]:
    write(value)
    try:
        yield
    finally:
        write(before)


# States of torch that a caller may be in.
CALLERS: dict[str, Callable[[], AbstractContextManager]] = {
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "no_grad": torch.no_grad,
    "inference mode": torch.inference_mode,
    "float64": lambda: _set(torch.set_default_dtype, torch.float64, torch.float32),
    "another device": lambda: torch.device("meta"),
    "medium precision": lambda: _set(torch.set_float32_matmul_precision, "medium", "highest"),
    "precision of products": lambda: _set(
        lambda to: torch._C._set_fp32_precision_setter("mkldnn", "matmul", to), "bf16", "none"
    ),
    "no oneDNN": lambda: _set(torch._C._set_mkldnn_enabled, False, True),
    "plain attention": lambda: sdpa_kernel(SDPBackend.MATH),
    "no denormals": lambda: _set(torch.set_flush_denormal, True, False),
    "threads": lambda: _set(
        torch.set_num_threads, torch.get_num_threads() + 1, torch.get_num_threads()
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


@pytest.mark.parametrize("caller", CALLERS)
def test_numbers_are_the_same_and_the_callers_state_comes_back(caller):
    with CALLERS[caller]():
        before = _state()
        with fixed_state(1):
            found = numbers()
        assert _state() == before
    assert all(torch.equal(found[name], right()[name]) for name in right())
    assert found["denormal"] > 0


def _state() -> tuple:
    a = torch.ones(2, 2, device="cpu", dtype=torch.float32)
    return (
        torch.get_num_threads(),
        torch.get_default_dtype(),
        torch.get_default_device(),
        torch.is_autocast_enabled("cpu"),
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch._C._get_fp32_precision_getter("mkldnn", "matmul"),
        torch._C._get_fp32_precision_getter("mkldnn", "conv"),
        torch._C._get_mkldnn_enabled(),
        torch.backends.cuda.flash_sdp_enabled(),
        (a @ a).dtype,
    )
