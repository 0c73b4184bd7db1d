"""Checks of tensors from other parties and from saved models, before anything is computed with
them.

Every system's server looks at messages through this module first, and every reader of saved models
at their files.
"""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

from fedmuscle_lib.core.errors import NotFinite, RefusedMessage, unreadable


def copied(
    sender: str, what: str, value: object, shape: tuple[int, ...], whole: bool = False
) -> Tensor:
    """Return the receiver's own copy of a tensor, which nothing that happens to ``value`` later
    changes.

    Args:
        sender: who sent it, such as "user 5", and what: the message by name; for errors.
        whole: whether it is of whole numbers.

    Raises:
        RefusedMessage: naming the sender; it is no tensor of this shape, or its type holds other
            numbers.
    """
    if not isinstance(value, Tensor):
        raise RefusedMessage(f"{sender} sent {what} as a {type(value).__name__}, not as a tensor")
    if value.is_floating_point() == whole:
        kind = "whole" if whole else "floating-point"
        raise RefusedMessage(f"{sender} sent {what} as {value.dtype}; {kind} numbers are expected")
    if value.shape != shape:
        raise RefusedMessage(
            f"{sender} sent {what} of shape {tuple(value.shape)}; {shape} is expected"
        )
    return value.detach().clone(memory_format=torch.contiguous_format)


def unit_rows(
    sender: str, value: object, shape: tuple[int, int], place: str, tolerance: float
) -> Tensor:
    """Return the receiver's own copy of representations (rows, d).

    Args:
        place: what they are of, such as "round 1, batch 2", for errors.
        tolerance: by how much a row's norm may be off 1.

    Raises:
        RefusedMessage: naming the sender, as :func:`copied`, or for a row that is not of unit norm.
        NotFinite: naming the sender, for a row with numbers that are not finite.
    """
    z = copied(sender, f"representations for {place}", value, shape)
    norms = torch.linalg.vector_norm(z, dim=1)
    error = (norms - 1).abs()
    worst = int(error.nan_to_num(nan=torch.inf).argmax())
    if not error[worst] <= tolerance:  # the negation also catches nan
        where = f"(row {worst} of {place})"
        if not torch.isfinite(z[worst]).all():
            raise NotFinite(f"{sender} sent a representation that is not finite {where}")
        raise RefusedMessage(
            f"{sender} sent a representation that has norm {norms[worst]:.4g}, not 1 {where};"
            " torch.nn.functional.normalize(z, dim=-1) gives rows of norm 1"
        )
    return z


def like(value: object, ours: Tensor) -> bool:
    """Return whether ``value`` is a tensor of the same shape and type, and can take the place of
    ours.
    """
    return isinstance(value, Tensor) and value.shape == ours.shape and value.dtype == ours.dtype


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors of a safetensors file by name, and its metadata.

    Raises:
        DataError: naming the file; it can't be read.
    """
    with unreadable(f"{path}: not readable tensors"), safe_open(path, "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no dict
        about = file.metadata() or {}
    return tensors, about
