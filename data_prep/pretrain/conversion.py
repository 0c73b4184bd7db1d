"""Weights of other programs under the names of transformers: EfficientNet-Lite's and BERT's.

What is converted is what the architecture needs, no more (no classifier, no pooler) and no less, in
float32.
"""

from __future__ import annotations

import io
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import torch
from safetensors.torch import load as load_safetensors
from torch import Tensor
from transformers import (
    BertConfig,
    BertModel,
    EfficientNetConfig,
    EfficientNetModel,
    PreTrainedModel,
)

from data_prep.io.entry import SourceError
from fedmuscle_lib.core.errors import unreadable

_NAMES: dict[str, dict[str, str]] = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text(encoding="utf8")
)
# What sources have besides: classifiers, poolers, counters of training batches, and positions,
# which transformers counts itself.
_LEFT_OUT = re.compile(
    r"(_fc|classifier|pooler\.dense)\.(weight|bias)|embeddings\.position_ids|.*\.num_batches_tracked"
)

Config = dict[str, Any]


def converted(tensors: Mapping[str, Tensor], config: Config, source: str) -> dict[str, Tensor]:
    """Return the weights of the architecture that ``config`` (the content of config.json)
    describes, by transformers' names.

    Args:
        tensors: weights by the names of one of the programs known here.
        source: the file that they are from, for errors.

    Raises:
        SourceError: a weight is missing, has another shape, or is none of this architecture.
    """
    expected, found = shapes(config), {}
    for theirs, tensor in tensors.items():
        if not _LEFT_OUT.fullmatch(name := _renamed(theirs, config)):
            found[name] = tensor
    for name, shape in expected.items():
        if name not in found:
            raise SourceError(f"{source}: has no {name}; it is no checkpoint of this architecture")
        if found[name].shape != shape:
            raise SourceError(f"{source}: {name} is {tuple(found[name].shape)}, not {tuple(shape)}")
    if unknown := found.keys() - expected.keys():
        raise SourceError(f"{source}: has {min(unknown)}, which this architecture lacks")
    return {name: found[name].float().contiguous() for name in expected}


def shapes(config: Config) -> dict[str, torch.Size]:
    """Return the shape of each weight of the architecture, by transformers' names."""
    model: PreTrainedModel
    with torch.device("meta"):
        if config["model_type"] == "bert":
            model = BertModel(BertConfig.from_dict(config), add_pooling_layer=False)
        else:  # EfficientNet-Lite is transformers' EfficientNet without squeeze-and-excitation
            model = EfficientNetModel(
                EfficientNetConfig.from_dict(config | {"model_type": EfficientNetConfig.model_type})
            )
    state = {
        name: tensor.shape
        for name, tensor in model.state_dict().items()
        if ".squeeze_excite." not in name
    }
    return {name: shape for name, shape in state.items() if not _LEFT_OUT.fullmatch(name)}


def _renamed(name: str, config: Config) -> str:
    """Return transformers' name of a weight."""
    if config["model_type"] == "bert":
        return name.removeprefix("model.0.auto_model.")  # sentence-transformers counts its modules
    layer, _, kind = name.rpartition(".")
    if match := re.fullmatch(r"_blocks\.(\d+)\.(\w+)", layer):
        block, known, layer = int(match[1]), "reference", match[2]
    elif match := re.fullmatch(r"blocks\.(\d+)\.(\d+)\.(\w+)", layer):
        stage = int(match[1])
        block, known, layer = (
            sum(config["num_block_repeats"][:stage]) + int(match[2]),
            "timm" if stage else "timm_first",
            match[3],
        )
    else:
        return f"{_NAMES['outside'].get(layer, layer)}.{kind}"
    return f"encoder.blocks.{block}.{_NAMES[known].get(layer, layer)}.{kind}"


def read(content: bytes, source: str) -> dict[str, Tensor]:
    """Return the tensors of a file, by name. Nothing in the file is executed.

    Args:
        source: its name, which ends in .pth, .safetensors or .onnx.

    Raises:
        SourceError: the file is damaged, or holds something else.
    """
    suffix = PurePosixPath(source).suffix
    with unreadable(f"{source}: not a readable {suffix} file", SourceError, but=(ImportError,)):
        return _READERS[suffix](content)


def _pth(content: bytes) -> dict[str, Tensor]:
    state = torch.load(io.BytesIO(content), weights_only=True, map_location="cpu")
    if not isinstance(state, dict) or not all(
        isinstance(tensor, Tensor) for tensor in state.values()
    ):
        raise ValueError("holds no tensors by name")
    return state


def _onnx(content: bytes) -> dict[str, Tensor]:
    """Return initialisers by name. The exporter transposes a linear layer's matrix and calls it by
    a number; the node that reads it has the layer's name, such as
    ``/model/model.0/auto_model/encoder/layer.0/attention/self/query/MatMul``.
    """
    import onnx
    from onnx import numpy_helper

    graph = onnx.load_model_from_string(content).graph
    tensors = {
        tensor.name: torch.from_numpy(numpy_helper.to_array(tensor).copy())
        for tensor in graph.initializer
    }
    for node in graph.node:
        if node.op_type == "MatMul" and len(node.input) == 2 and node.input[1] in tensors:
            layer = ".".join(node.name.split("/")[2:-1])
            tensors[f"{layer}.weight"] = tensors.pop(node.input[1]).T
    return tensors


_READERS: dict[str, Callable[[bytes], dict[str, Tensor]]] = {
    ".pth": _pth,
    ".safetensors": load_safetensors,
    ".onnx": _onnx,
}
