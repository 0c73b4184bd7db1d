"""SegFormer's MLP decoder, computed with its products taken where the maps are small."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, interpolate
from transformers.models.segformer.modeling_segformer import SegformerDecodeHead


def decode(head: SegformerDecodeHead, maps: Sequence[Tensor]) -> Tensor:
    """Four maps (b, width, h, w), from fine to coarse -> (b, classes, h, w) of the finest map (Xie
    et al., 2021, section 3.2).

    ``head(maps)`` projects each map, upsamples it, and fuses the four by one linear layer at the
    finest resolution. Two linear layers in a row are one, and a linear layer over channels commutes
    with bilinear interpolation, which is linear in the map and keeps constants. So each map meets
    the product of its two weights at its own resolution, and what is upsampled is summed. Values
    and gradients are those of ``head(maps)`` up to rounding.
    """
    size = maps[0].shape[2:]
    fusing = head.linear_fuse.weight.flatten(1).split(head.config.decoder_hidden_size, 1)[
        ::-1
    ]  # the coarsest comes first there
    products = [_product(*each) for each in zip(maps, head.linear_projections, fusing, strict=True)]
    fused = reduce(
        torch.add,
        (
            interpolate(product, size=size, mode="bilinear", align_corners=False)
            for product in products
        ),
    )
    return head.classifier(head.dropout(head.activation(head.batch_norm(fused))))


def _product(found: Tensor, projection: nn.Module, fusing: Tensor) -> Tensor:
    weight, bias = (
        fusing @ projection.get_parameter(f"proj.{name}") for name in ("weight", "bias")
    )
    return conv2d(
        found.contiguous(memory_format=torch.channels_last), weight[:, :, None, None], bias
    )
