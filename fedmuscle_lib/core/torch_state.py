"""Torch's global state that numbers depend on: ours while something is computed, the caller's again
afterwards.

A run is stored under its settings alone, so nothing that the caller's process has set for its own
work may reach the run's numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import product
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

_EXACT = ("none", "ieee")  # torch's two names for products of float32 in float32
_ATTENTION = [
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.MATH,
    SDPBackend.CUDNN_ATTENTION,
]


@contextmanager
def fixed_state(threads: int | None = None) -> Iterator[None]:
    """Fix the state that numbers depend on, and give the caller's back.

    Inside, autocast is off, gradients are on and inference mode is off; new tensors are float32 and
    on the CPU; float32 is multiplied without rounding to TF32 or bfloat16; oneDNN and all kernels
    of attention may be used; denormal numbers are kept, also afterwards, since torch does not tell
    whether the caller flushed them. The global random generator is not touched, because every draw
    has one of its own, and neither is what makes a GPU's sums repeatable.

    Args:
        threads: torch threads; by default as many as the caller has.
    """
    with ExitStack() as stack:

        def put(read: Callable[[], Any], write: Callable[[Any], Any], value: Any) -> None:
            if (before := read()) != value:
                stack.callback(write, before)
                write(value)

        if threads is not None:
            put(torch.get_num_threads, torch.set_num_threads, threads)
        put(torch.get_default_dtype, torch.set_default_dtype, torch.float32)
        put(torch._C._get_mkldnn_enabled, torch._C._set_mkldnn_enabled, True)
        torch.set_flush_denormal(False)
        for device in ("cpu", "cuda", "mps", "xpu"):
            on = partial(torch.is_autocast_enabled, device)
            put(on, partial(torch.set_autocast_enabled, device), False)
        # torch can't name one precision where the caller has set products apart; these follow
        with suppress(RuntimeError):
            put(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "highest")
        for which in product(("mkldnn", "cuda"), ("matmul", "conv", "rnn")):
            read = partial(torch._C._get_fp32_precision_getter, *which)
            if read() not in _EXACT:
                put(read, partial(torch._C._set_fp32_precision_setter, *which), "ieee")
        if torch.get_default_device().type != "cpu":  # it costs each of torch's calls a detour
            stack.enter_context(torch.device("cpu"))
        stack.enter_context(sdpa_kernel(_ATTENTION))
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        yield
