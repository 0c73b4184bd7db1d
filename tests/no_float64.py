"""A device that computes on the CPU and has no float64, as Apple's MPS has none.

It takes the name of torch's ``meta``, whose tensors have no numbers: here they have.
As a program: short runs on it, ``python no_float64.py WORLD SYSTEM [RUN]...``.
"""

from __future__ import annotations

import sys
from contextlib import nullcontext
from copy import deepcopy
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from fingerprints import runs
from torch.nn.functional import normalize
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only
from transformers import PreTrainedModel

from fedmuscle_lib.core import training
from fedmuscle_lib.models import checkpoints, load_backbone
from fedmuscle_lib.muscle import make_reply, muscle_loss
from fedmuscle_lib.runs.compute import train

NAME = "meta"
NOTHING = SimpleNamespace(get_total_flops=lambda: 0)  # is counted


class OnDevice(torch.Tensor):
    """A tensor of the device; its numbers are in ``raw``, a tensor of the CPU."""

    raw: torch.Tensor

    @staticmethod
    def __new__(cls, raw: torch.Tensor) -> OnDevice:
        if raw.dtype == torch.float64:
            raise TypeError("the device has no float64")
        made = torch.Tensor._make_wrapper_subclass(
            cls, raw.shape, raw.stride(), raw.storage_offset(), dtype=raw.dtype, device=NAME
        )
        made.raw = raw
        return made

    def tolist(self) -> Any:  # which torch refuses of subclasses
        return self.raw.tolist()

    @classmethod
    def __torch_dispatch__(cls, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return done(op, args, kwargs or {})


def done(op: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Do an operation on the CPU; its result lies where the device would have it."""
    named = "device" in kwargs and torch.device(kwargs["device"] or "cpu").type
    given_here = any(isinstance(leaf, OnDevice) for leaf in tree_leaves((args, kwargs)))
    here = named == NAME or given_here and not named
    if named == NAME:
        kwargs = {**kwargs, "device": "cpu"}
    raw, given = tree_map_only(OnDevice, lambda one: one.raw, (args, kwargs))
    found = op(*raw, **given)
    for argument, one in zip(op._schema.arguments, args, strict=False):
        if argument.is_write:
            return one if op._schema.returns else None
    return tree_map_only(torch.Tensor, OnDevice, found) if here else found


class Device(TorchDispatchMode):
    """Inside, tensors can be made on the device."""

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return done(op, args, kwargs or {})


def tensor(
    data: Any, device: Any = "cpu", *, _of: Any = torch.tensor, **given: Any
) -> torch.Tensor:
    """Return what ``torch.tensor`` does, which modes do not see."""
    made = _of(data, **given)
    return OnDevice(made) if torch.device(device or "cpu").type == NAME else made


def loss(device: str) -> list[float]:
    """The loss, its gradients and replies at a temperature at which float32 is too short."""
    z = normalize(torch.randn(4, 6, 8, generator=torch.Generator().manual_seed(0)), dim=-1)
    anchor, *others = z.to(device)
    heats = [torch.tensor(heat, requires_grad=True) for heat in (0.2, 0.01)]
    value = muscle_loss(anchor.requires_grad_(), others, *heats)
    found = [value, *torch.autograd.grad(value, [anchor, *heats])]
    for kind in ("factored", "gradient"):
        found.append(make_reply(kind, anchor, others, 0.2, 0.01).loss(anchor))
    return [float(one.detach().cpu().sum()) for one in found]


def main(world: Path, system: str, *names: str) -> None:
    """Compute short runs, all of the system's by default; raises what they do on the device."""
    places = {"data_dir": world} | (
        {} if system == "fedloge" else {"models_path": world / "models"}
    )
    on_cpu = {str(path): load_backbone(path) for path in (world / "models").iterdir()}

    @cache
    def on_device(path: str, device: str, stamps: Any) -> PreTrainedModel:
        """Transformers makes its modules on torch's own ``meta`` first."""
        return deepcopy(on_cpu[path]).to(device)

    with (
        Device(),
        patch("torch.optim.optimizer._get_fused_kernels_supported_devices", lambda: ["cpu", NAME]),
        patch("torch.tensor", tensor),
        patch.object(checkpoints, "_frozen", on_device),
        patch.object(training, "FlopCounterMode", lambda display: nullcontext(NOTHING)),
        patch("torch.is_autocast_enabled", lambda *_: False),
        patch("torch.autocast", lambda *_, **__: nullcontext()),
    ):
        assert loss(NAME) == loss("cpu")
        for name, settings in runs(system, device=NAME, **places).items():
            # a GRU's sequences, which only "scratch" has, are packed with a part on the CPU
            if name in names or not names and name != "scratch":
                assert train(settings).tables["metrics"].value.notna().all()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
