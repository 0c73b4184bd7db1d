"""What a party sent or a checkpoint holds, before anything is computed with it.

Every system's server looks at messages through this module first.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedmuscle_lib.core.errors import RefusedMessage


def plain(sender: str, what: str, value: object, device: torch.device) -> Tensor:
    """Return ``value`` if it is a dense tensor of ordinary numbers on ``device`` that has memory for all of them.

    Nothing that a subclass of ``Tensor`` could override is called, and no number is read: reading past the end of a storage that was
    shrunk would end the process.

    Args:
        sender: who sent it, such as "user 5", and what: the message by name; for errors.

    Raises:
        RefusedMessage: naming the sender, for anything else.
    """
    if type(value) is not Tensor:
        raise RefusedMessage(f"{sender} sent {what} as a {type(value).__name__}; a plain tensor is expected")
    if value.layout != torch.strided or value.is_nested or value.is_quantized:
        kind = "nested" if value.is_nested else "quantized" if value.is_quantized else str(value.layout).removeprefix("torch.")
        raise RefusedMessage(f"{sender} sent {what} as a {kind} tensor; a dense one is expected")
    if value.device.type != device.type or (device.index is not None and value.device.index != device.index):
        raise RefusedMessage(f"{sender} sent {what} on {value.device}; {device} is expected")
    if value.numel():
        last = value.storage_offset() + sum((size - 1) * stride for size, stride in zip(value.shape, value.stride(), strict=True))
        if (last + 1) * value.itemsize > value.untyped_storage().nbytes():
            raise RefusedMessage(f"{sender} sent {what} without memory for all numbers")
    return value


def own_copy(value: Tensor) -> Tensor:
    """Return the numbers in memory of the receiver's own, so that nothing that happens to ``value`` later changes them."""
    return torch.empty(value.shape, dtype=value.dtype, device=value.device).copy_(value.detach())


def like(value: object, ours: Tensor) -> bool:
    """Whether ``value`` is a tensor of the same shape and type, and can take the place of ours."""
    return type(value) is Tensor and value.shape == ours.shape and value.dtype == ours.dtype
