"""Weights of other programs under the names of transformers: EfficientNet-Lite's and BERT's."""

from __future__ import annotations

import io
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

import torch
from safetensors.torch import load as load_safetensors
from torch import Tensor

_NAMES: dict[str, dict[str, str]] = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text(encoding="utf8")
)
# What sources have besides: classifiers, poolers, counters of training batches, and positions,
# which transformers counts itself.
_LEFT_OUT = re.compile(
    r"(_fc|pooler\.dense)\.(weight|bias)|embeddings\.position_ids|.*\.num_batches_tracked"
)


def converted(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return weights by transformers' names, in float32, without what no user reads.

    Args:
        tensors: weights by the names of efficientnet-lite-pytorch or sentence-transformers.
    """
    named = {_renamed(name): tensor for name, tensor in tensors.items()}
    return {
        name: tensor.float().contiguous()
        for name, tensor in named.items()
        if not _LEFT_OUT.fullmatch(name)
    }


def _renamed(name: str) -> str:
    name = name.removeprefix("model.0.auto_model.")  # sentence-transformers counts its modules
    layer, _, kind = name.rpartition(".")
    if match := re.fullmatch(r"_blocks\.(\d+)\.(\w+)", layer):
        return f"encoder.blocks.{match[1]}.{_NAMES['block'][match[2]]}.{kind}"
    return f"{_NAMES['outside'].get(layer, layer)}.{kind}"


def read(content: bytes, name: str) -> dict[str, Tensor]:
    """Return the tensors of a .pth, .safetensors or .onnx file by name; nothing in it is run."""
    suffix = PurePosixPath(name).suffix
    if suffix == ".pth":
        return torch.load(io.BytesIO(content), weights_only=True, map_location="cpu")
    return load_safetensors(content) if suffix == ".safetensors" else _onnx(content)


def _onnx(content: bytes) -> dict[str, Tensor]:
    """Return initialisers by name.

    The exporter transposes a linear layer's matrix and calls it by a number; the node that reads it
    has the layer's name, such as
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
