"""Convolutional networks from scratch, images (b, 3, h, w) -> features (b, d), all of them at least
0.

Images have any side from 16 px, for ResNet-50 from 32 px. Batch norm throughout: the federation
averages its running statistics with the weights. Maps and weights have their channels last in
memory: so the CPU's convolutions, batch norm and pooling are fastest.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d


class Network(nn.Sequential):
    """Layers whose last maps are averaged over their positions.

    Attributes:
        dim: d, channels of the last maps.
    """

    def __init__(self, *layers: nn.Module, dim: int) -> None:
        super().__init__(*layers)
        self.dim = dim
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, images: Tensor) -> Tensor:
        maps = super().forward(images.contiguous(memory_format=torch.channels_last))
        return adaptive_avg_pool2d(maps, 1).flatten(1)


def conv_bn(width_in: int, width_out: int, size: int = 3, stride: int = 1) -> nn.Sequential:
    """A convolution that keeps the side (divided by the stride), and batch norm in place of its
    bias.
    """
    conv = nn.Conv2d(width_in, width_out, size, stride, padding=size // 2, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(width_out))


class Residual(nn.Module):
    """The basic block of He et al. (2016): two 3 x 3 convolutions and a shortcut, which a 1 x 1
    convolution fits to their shape.
    """

    def __init__(self, width_in: int, width_out: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            conv_bn(width_in, width_out, 3, stride), nn.ReLU(), conv_bn(width_out, width_out)
        )
        same = stride == 1 and width_in == width_out
        self.shortcut = nn.Identity() if same else conv_bn(width_in, width_out, 1, stride)

    def forward(self, maps: Tensor) -> Tensor:
        return torch.relu(self.body(maps) + self.shortcut(maps))


def resnet(blocks: tuple[int, int, int, int]) -> Network:
    """Make a ResNet for small images: a 3 x 3 stem without pooling, then four stages of 64 to 512
    channels; d = 512.

    Args:
        blocks: residual blocks of each stage; (2, 2, 2, 2) is ResNet-18 and (3, 4, 6, 3) ResNet-34.

    Source:
        He et al. (2016), with the stem that is usual for CIFAR.
    """
    layers: list[nn.Module] = [conv_bn(3, 64), nn.ReLU()]
    for (width_in, width_out), stride, count in zip(
        pairwise((64, 64, 128, 256, 512)), (1, 2, 2, 2), blocks, strict=True
    ):
        layers.append(Residual(width_in, width_out, stride))
        layers += [Residual(width_out, width_out, 1) for _ in range(count - 1)]
    return Network(*layers, dim=512)


def small_cnn(dim: int) -> Network:
    """Make a network of three convolutions for minutes on a CPU, the last of ``dim`` channels."""
    layers: list[nn.Module] = []
    for width_in, width_out in pairwise((3, dim // 4, dim // 2, dim)):
        layers += [
            conv_bn(width_in, width_out),
            nn.MaxPool2d(2),
            nn.ReLU(),
        ]  # in this order, ReLU has a quarter of the work
    del layers[-2]  # the mean over positions stands in for the last pooling
    return Network(*layers, dim=dim)


class _ResNet50(nn.Module):
    """ResNet-50 of He et al. (2016), with a stem for large images, by transformers; its maps, (b,
    2048, h / 32, w / 32).
    """

    def __init__(self) -> None:
        super().__init__()
        from transformers import ResNetConfig, ResNetModel  # which other networks do without

        self.body = ResNetModel(ResNetConfig())  # whose defaults are ResNet-50's

    def forward(self, images: Tensor) -> Tensor:
        return self.body(images).last_hidden_state


NETWORKS: dict[str, Callable[[], Network]] = {
    "small_cnn": lambda: small_cnn(64),
    "wide_cnn": lambda: small_cnn(128),  # which has room for 100 equal angles
    "resnet18": lambda: resnet((2, 2, 2, 2)),
    "resnet34": lambda: resnet((3, 4, 6, 3)),
    "resnet50": lambda: Network(_ResNet50(), dim=2048),
}
