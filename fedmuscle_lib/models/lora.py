"""LoRA (Hu et al., 2022): peft's layers, of which linear ones are computed in one product."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from peft import LoraConfig, inject_adapter_in_model
from peft.tuners import lora
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn.functional import linear


def adapt(
    backbone: nn.Module,
    targets: Sequence[str],
    rank: int,
    alpha: int,
    *,
    merged: bool = True,
    dropout: float = 0.0,
) -> list[nn.Module]:
    """Add LoRA matrices of a rank to the layers of a backbone that ``targets`` names in full, and
    freeze everything else.

    Args:
        merged: compute linear layers as one product, see :class:`Merged`.
        dropout: probability with which training drops an input of a matrix A, in which case no
            product is merged.

    Returns:
        The adapted layers' dropouts.
    """
    # by full names: a name's ending alone could fit a layer outside of the chosen blocks
    config = LoraConfig(
        r=rank, lora_alpha=alpha, target_modules=list(targets), lora_dropout=dropout
    )
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", "fan_in_fan_out is set to"
        )  # peft sets what GPT-2's transposed layers need
        inject_adapter_in_model(config, backbone)
    for layer in backbone.modules():
        if merged and not dropout and type(layer) is lora.Linear:
            layer.__class__ = Merged
    return [layer.lora_dropout for layer in backbone.modules() if isinstance(layer, lora.LoraLayer)]


class Merged(lora.Linear):
    """A linear layer whose weight and LoRA matrices meet before the inputs do: (W + s B A) x in
    place of W x + s B (A x).

    B A costs rank times the weight's entries, whatever the batch. peft's form multiplies the inputs
    by A and by what that gives by B, two small products more. The gradients of A and B go by that
    of the whole weight where the weight is small, and by products of the rank where it is large.
    Values and gradients are peft's up to rounding. ``bench local`` measures it.
    """

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if self.disable_adapters or self.merged or len(self.active_adapters) != 1:
            return super().forward(x, *args, **kwargs)
        a, b = (
            matrices[self.active_adapter[0]].get_parameter("weight")
            for matrices in (self.lora_A, self.lora_B)
        )
        base: Any = self.get_base_layer()
        weight = base.weight.T if self.fan_in_fan_out else base.weight
        scaling = self.scaling[self.active_adapter[0]]
        # by the whole weight: samples x in x out; by the rank: samples x 2 rank (in + out), in
        # products that are less efficient
        if weight.numel() < 4 * len(a) * sum(weight.shape):
            return linear(x, torch.addmm(weight, b, a, alpha=scaling), base.bias)
        y: Tensor = _OneProduct.apply(x, weight, base.bias, a, b, scaling)
        return y


class _OneProduct(Function):
    """x (..., in), W (out, in), bias (out,) or None, A (rank, in), B (out, rank), s -> (W + s B A)
    x + bias; W and bias get no gradient.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        a: Tensor,
        b: Tensor,
        scaling: float,
    ) -> Tensor:
        ctx.scaling = scaling
        ctx.save_for_backward(x, weight, a, b)
        return linear(x, torch.addmm(weight, b, a, alpha=scaling), bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, a, b = ctx.saved_tensors
        g, rows = grads[0].flatten(0, -2), x.flatten(0, -2)
        low = ctx.scaling * (g @ b)  # (samples, rank)
        grad_x = torch.addmm(g @ weight, low, a).view_as(x) if ctx.needs_input_grad[0] else None
        return grad_x, None, None, low.T @ rows, g.T @ (ctx.scaling * (rows @ a.T)), None
