"""A round beside the same round in plain form; ``python -m fedmuscle_lib bench fedloge`` prints the
table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from fedmuscle_lib.core.randomness import batches, generator
from fedmuscle_lib.core.timing import alternate, seconds
from fedmuscle_lib.core.torch_state import fixed_state
from fedmuscle_lib.fedloge.build import Federation, build
from fedmuscle_lib.fedloge.methods.method import Recipe
from fedmuscle_lib.fedloge.networks import Network
from fedmuscle_lib.fedloge.preprocessing import LocalData
from fedmuscle_lib.fedloge.settings import Settings

PARTS = {  # of a round's time, by what its operations' names begin with
    "convolutions": ("aten::convolution", "aten::mkldnn_convolution", "aten::cudnn_convolution"),
    "batch norm": ("aten::native_batch_norm", "aten::cudnn_batch_norm"),
    "pooling and ReLU": (
        "aten::max_pool2d",
        "aten::clamp_min",
        "aten::relu",
        "aten::threshold_backward",
    ),
    "SGD": ("Optimizer.", "aten::_fused_sgd"),
}
_PATIENCE = 60.0  # seconds after which no further pair begins
_SIDE = 1024  # of the matrices whose product tells the machine's speed


class PlainData(LocalData):
    """The same batches, each image cropped, mirrored and normalised alone, as a data loader does
    it.
    """

    def batches(self, round: int, epoch: int, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        for step, rows in enumerate(
            batches(len(self), size, "local order", *self._address, round, epoch)
        ):
            drawn = self.preprocessing.drawn(
                len(rows), generator("augmentation", *self._address, round, epoch, step)
            )
            images = [
                self._one(self.samples.inputs[row], *how)
                for row, how in zip(rows.tolist(), drawn.T.tolist(), strict=True)
            ]
            yield torch.stack(images), self.samples.targets[rows]

    def _one(self, image: Tensor, down: int, across: int, mirrored: int) -> Tensor:
        _, h, w = image.shape
        cropped = pad(image, [self.preprocessing.padding] * 4)[
            :, down : down + h, across : across + w
        ]
        return self.preprocessing.read(cropped.flip(2) if mirrored else cropped)


class PlainNetwork(Network):
    """The same features, from contiguous maps, with each ReLU before its pooling."""

    def forward(self, images: Tensor) -> Tensor:
        maps = images
        for before, layer in pairwise([None, *self]):
            if isinstance(layer, nn.MaxPool2d):
                maps = layer(maps.relu())
            elif not isinstance(before, nn.MaxPool2d):
                maps = layer(maps)
        return maps.mean((2, 3))


class PlainRecipe(Recipe):
    """The same steps, one parameter after the other."""

    def optimiser(self, parameters: Iterable[nn.Parameter]) -> torch.optim.SGD:
        return torch.optim.SGD(
            parameters,
            lr=self.lr,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
            foreach=False,
        )


def in_plain_form(federation: Federation) -> Federation:
    """Change a federation, whose rounds then end with the same weights up to rounding, and return
    it.
    """
    modules = [federation._workspace, *(client._private for client in federation.clients.values())]
    for network in (one for each in modules for one in each.modules() if isinstance(one, Network)):
        network.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
        network.__class__ = PlainNetwork
    for client in federation.clients.values():
        client.data.__class__ = PlainData
        client.recipe = PlainRecipe(**vars(client.recipe))
    return federation


def bench_fedloge(settings: Settings, *, pairs: int = 15) -> pd.DataFrame:
    """Print the first round in the library's form and in the plain one (:func:`in_plain_form`),
    side by side.

    Below the table stand the parts of the library's time by torch's profiler, and a bound: how many
    times as fast the round would be if it did nothing but its convolutions and products, at the
    speed that this machine multiplies large matrices with.

    Args:
        settings: which round.
        pairs: alternations, fewer for what takes long; times are medians over them.

    Returns:
        One row for data (the drawn clients' batches), round (training, data and messages) and
        evaluation: what, library_ms, plain_ms, speedup.
    """
    with fixed_state(settings.threads):
        library, plain = build(settings), in_plain_form(build(settings))
        works: dict[str, Callable[[Federation], object]] = {
            "data": _pass,
            "round": lambda each: each.round(0),
            "evaluation": lambda each: each.evaluate(0),
        }
        rows = []
        for what, work in works.items():
            calls = {"library_ms": partial(work, library), "plain_ms": partial(work, plain)}
            times = {
                name: median * 1e3
                for name, median in alternate(calls, pairs, _PATIENCE, settings.device).items()
            }
            rows.append({"what": what, **times, "speedup": times["plain_ms"] / times["library_ms"]})
        shares, bound = _shares(library), _fewest_seconds(library, settings.device) * 1e3
    table = pd.DataFrame(rows)
    print(
        f"A round of {settings.title}, {settings.network}, {settings.device}, {settings.threads}"
        " thread(s)"
    )
    print(table.to_string(index=False, float_format="{:.3g}".format))
    print("of a round: " + ", ".join(f"{part} {share:.0%}" for part, share in shares.items()))
    most = table.set_index("what").library_ms["round"] / bound
    print(
        "its convolutions and products alone, as fast as this machine multiplies matrices:"
        f" {bound:.3g} ms, {most:.2f} times as fast"
    )
    return table


def _pass(federation: Federation) -> None:
    for client in (federation.clients[number] for number in federation.server.participants(0)):
        for epoch in range(client.recipe.epochs):
            for _ in client.data.batches(0, epoch, client.recipe.batch_size):
                pass


def _shares(federation: Federation) -> dict[str, float]:
    """Shares of a round's time on the CPU by PARTS, and what remains."""
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        federation.round(0)
    found: Counter[str] = Counter()
    for event in profiler.events():
        part = next(
            (part for part, names in PARTS.items() if event.name.startswith(names)), "the rest"
        )
        found[part] += event.self_cpu_time_total
    return {part: found[part] / found.total() for part in (*PARTS, "the rest")}


def _fewest_seconds(federation: Federation, device: str) -> float:
    """Seconds of a round's convolutions and products at the speed of a large product of
    matrices.
    """
    with FlopCounterMode(display=False) as counter:
        federation.round(0)
    matrix = torch.rand(_SIDE, _SIDE, device=device)
    quickest: Any = min(seconds(lambda: matrix @ matrix, device) for _ in range(10))
    return counter.get_total_flops() * quickest / (2 * _SIDE**3)
