"""LoRA (Hu et al., 2022): peft's layers, of which small ones are computed in one product."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from peft import LoraConfig, inject_adapter_in_model
from peft.tuners import lora
from torch import Tensor, nn
from torch.nn.functional import linear

# One product is taken where a weight has at most this many times its adapter's entries. On one core with 32 samples that makes a step
# faster at ratios of 3 to 6 (mini's ViTs) and 5 to 10 (hybrid ViTs); at 12 to 19 (MiniLM) it would be slower. ``bench local`` measures it.
_MOST = 10


def adapt(backbone: nn.Module, targets: Sequence[str], rank: int, alpha: int, *, merged: bool = True) -> None:
    """Add LoRA matrices of a rank to the layers of a backbone that ``targets`` names in full, and freeze everything else.

    Args:
        merged: compute small linear layers as one product, see :class:`Merged`.
    """
    # by full names: a name's ending alone could fit a layer outside of the chosen blocks
    config = LoraConfig(r=rank, lora_alpha=alpha, target_modules=list(targets), lora_dropout=0.0)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "fan_in_fan_out is set to")  # peft sets what GPT-2's transposed layers need
        inject_adapter_in_model(config, backbone)
    for layer in backbone.modules():
        if merged and type(layer) is lora.Linear and layer.weight.numel() <= _MOST * sum(p.numel() for p in _matrices(layer)):
            layer.__class__ = Merged


class Merged(lora.Linear):
    """A linear layer whose weight and LoRA matrices meet before the inputs do: (W + s B A) x in place of W x + s B (A x).

    B A costs rank times the weight's entries, whatever the batch. peft's form multiplies the inputs by A and by what that gives by B, two
    small products forward and four backward, which cost more to start than to compute. Here the gradients of A and B go by that of the
    whole weight, so that large weights are better off with peft's form. Values and gradients are the same up to rounding.
    """

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if self.disable_adapters or self.merged or len(self.active_adapters) != 1:
            return super().forward(x, *args, **kwargs)
        a, b = _matrices(self)
        base: Any = self.get_base_layer()
        weight = base.weight.T if self.fan_in_fan_out else base.weight
        return linear(x, torch.addmm(weight, b, a, alpha=self.scaling[self.active_adapter[0]]), base.bias)


def _matrices(layer: lora.Linear) -> tuple[Tensor, Tensor]:
    a, b = (matrices[layer.active_adapter[0]].get_parameter("weight") for matrices in (layer.lora_A, layer.lora_B))
    return a, b
