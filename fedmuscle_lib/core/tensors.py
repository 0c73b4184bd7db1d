"""Checks of tensors from other parties and from saved models, before anything is computed with them.

Every system's server looks at messages through this module first, and every reader of saved models at their files.
"""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from fedmuscle_lib.core.errors import DataError, RefusedMessage, line_of, out_of_memory


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
    """Return whether ``value`` is a tensor of the same shape and type, and can take the place of ours."""
    return type(value) is Tensor and value.shape == ours.shape and value.dtype == ours.dtype


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors of a safetensors file by name, and its metadata.

    Raises:
        DataError: naming the file, unless it can be read and all numbers are finite.
    """
    try:
        with safe_open(path, "pt") as file:
            tensors, about = {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        if out_of_memory(error):
            raise
        raise DataError(f"{path}: not readable tensors ({line_of(str(error))})") from None
    for name, tensor in tensors.items():
        if not torch.isfinite(tensor).all():
            raise DataError(f"{path}: {line_of(name)} has numbers that are not finite")
    return tensors, about
