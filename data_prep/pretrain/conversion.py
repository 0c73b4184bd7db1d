"""Weights of other programs under the names of transformers: EfficientNet-Lite's and BERT's.

What is converted is what the architecture needs, no more (no classifier, no pooler) and no less, in float32.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping
from itertools import accumulate
from pathlib import PurePosixPath
from typing import Any

import torch
from safetensors.torch import load as load_safetensors
from torch import Tensor
from transformers import BertConfig, BertModel, EfficientNetConfig, EfficientNetModel, PreTrainedModel

from data_prep.io.entry import SourceError

# A block's layers, as transformers names them.
_EXPAND, _EXPAND_NORM = "expansion.expand_conv", "expansion.expand_bn"
_DEPTH, _DEPTH_NORM = "depthwise_conv.depthwise_conv", "depthwise_conv.depthwise_norm"
_PROJECT, _PROJECT_NORM = "projection.project_conv", "projection.project_bn"
_STEM, _STEM_NORM, _TOP, _TOP_NORM = "embeddings.convolution", "embeddings.batchnorm", "encoder.top_conv", "encoder.top_bn"

# efficientnet-lite-pytorch: names outside the blocks, and in each block
_REFERENCE = {"_conv_stem": _STEM, "_bn0": _STEM_NORM, "_conv_head": _TOP, "_bn1": _TOP_NORM}
_REFERENCE_BLOCK = {"_expand_conv": _EXPAND, "_bn0": _EXPAND_NORM, "_depthwise_conv": _DEPTH, "_bn1": _DEPTH_NORM}
_REFERENCE_BLOCK |= {"_project_conv": _PROJECT, "_bn2": _PROJECT_NORM}
# timm: likewise; its first stage, which does not expand, names its layers differently
_TIMM = {"conv_stem": _STEM, "bn1": _STEM_NORM, "conv_head": _TOP, "bn2": _TOP_NORM}
_TIMM_FIRST = {"conv_dw": _DEPTH, "bn1": _DEPTH_NORM, "conv_pw": _PROJECT, "bn2": _PROJECT_NORM}
_TIMM_BLOCK = {"conv_pw": _EXPAND, "bn1": _EXPAND_NORM, "conv_dw": _DEPTH, "bn2": _DEPTH_NORM, "conv_pwl": _PROJECT, "bn3": _PROJECT_NORM}

# What sources have besides: classifiers, poolers, counters of training batches, and positions, which transformers counts itself.
_LEFT_OUT = re.compile(r"(_fc|classifier|pooler\.dense)\.(weight|bias)|embeddings\.position_ids|.*\.num_batches_tracked")

Config = dict[str, Any]


def converted(tensors: Mapping[str, Tensor], config: Config, source: str) -> dict[str, Tensor]:
    """Return the weights of the architecture that ``config`` (the content of config.json) describes, by transformers' names.

    Args:
        tensors: weights by the names of one of the programs known here.
        source: the file that they are from, for errors.

    Raises:
        SourceError: a weight is missing, has another shape, or is none of this architecture.
    """
    rename = _NAMING[config["model_type"]](config)
    expected, found = shapes(config), {}
    for theirs, tensor in tensors.items():
        if not _LEFT_OUT.fullmatch(name := rename(theirs)):
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
            model = EfficientNetModel(EfficientNetConfig.from_dict(config | {"model_type": EfficientNetConfig.model_type}))
    state = {name: tensor.shape for name, tensor in model.state_dict().items() if ".squeeze_excite." not in name}
    return {name: shape for name, shape in state.items() if not _LEFT_OUT.fullmatch(name)}


def _efficientnet(config: Config) -> Callable[[str], str]:
    first = (0, *accumulate(config["num_block_repeats"]))  # of each stage's blocks

    def rename(name: str) -> str:
        layer, _, kind = name.rpartition(".")
        if match := re.fullmatch(r"_blocks\.(\d+)\.(\w+)", layer):
            block, known, layer = int(match[1]), _REFERENCE_BLOCK, match[2]
        elif match := re.fullmatch(r"blocks\.(\d+)\.(\d+)\.(\w+)", layer):
            stage = int(match[1])
            block, known, layer = first[min(stage, len(first) - 1)] + int(match[2]), _TIMM_BLOCK if stage else _TIMM_FIRST, match[3]
        else:
            return f"{(_REFERENCE | _TIMM).get(layer, layer)}.{kind}"
        return f"encoder.blocks.{block}.{known.get(layer, layer)}.{kind}"

    return rename


def _bert(config: Config) -> Callable[[str], str]:
    return lambda name: name.removeprefix("model.0.auto_model.")  # sentence-transformers counts its modules


_NAMING: dict[str, Callable[[Config], Callable[[str], str]]] = {"efficientnet_lite": _efficientnet, "bert": _bert}


def read(content: bytes, source: str) -> dict[str, Tensor]:
    """Return the tensors of a file, by name. Nothing in the file is executed.

    Args:
        source: its name, which ends in .pth, .safetensors or .onnx.

    Raises:
        SourceError: the file is damaged, or holds something else.
    """
    suffix = PurePosixPath(source).suffix
    try:
        return _READERS[suffix](content)
    except SourceError as error:
        raise SourceError(f"{source}: {error}") from None
    except Exception as error:  # torch, safetensors and protobuf have kinds of their own
        if isinstance(error, MemoryError | ImportError):
            raise
        raise SourceError(f"{source}: not a readable {suffix} file ({type(error).__name__}: {_line(error)})") from None


def _line(error: Exception) -> str:
    return (str(error).splitlines() or ["no reason given"])[0]


def _pth(content: bytes) -> dict[str, Tensor]:
    state = torch.load(io.BytesIO(content), weights_only=True, map_location="cpu")
    if not isinstance(state, dict) or not all(isinstance(tensor, Tensor) for tensor in state.values()):
        raise SourceError("holds no tensors by name")
    return state


def _onnx(content: bytes) -> dict[str, Tensor]:
    """Return initialisers by name. The exporter transposes a linear layer's matrix and calls it by a number; the node that reads it has
    the layer's name, such as ``/model/model.0/auto_model/encoder/layer.0/attention/self/query/MatMul``."""
    import onnx
    from onnx import numpy_helper

    graph = onnx.load_model_from_string(content).graph
    tensors = {tensor.name: torch.from_numpy(numpy_helper.to_array(tensor).copy()) for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "MatMul" and len(node.input) == 2 and node.input[1] in tensors:
            layer = ".".join(node.name.split("/")[2:-1])
            tensors[f"{layer}.weight"] = tensors.pop(node.input[1]).T
    return tensors


_READERS: dict[str, Callable[[bytes], dict[str, Tensor]]] = {".pth": _pth, ".safetensors": load_safetensors, ".onnx": _onnx}
