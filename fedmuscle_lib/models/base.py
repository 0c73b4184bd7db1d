"""Base of all users' models, whatever the modality."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from fedmuscle_lib.core.versions import Versioned
from fedmuscle_lib.data.encodings import Modality
from fedmuscle_lib.models.lora import adapt
from fedmuscle_lib.tasks import Head

Pooling = Literal["mean", "cls"]
Layers = Literal["attention", "linear"]
Blocks = Literal["all", "last", "none"]
HeadOn = Literal["features", "normalised", "representation"]

State = dict[
    str, Tensor
]  # results that training never changes, a row a sample: see UserModel.frozen


class UserModel(Versioned, nn.Module, ABC):
    """Representation model and head of one user (Section 3, Appendix H).

    A backbone is embeddings, then blocks, then what follows the last of them. LoRA adapts layers of
    some blocks. What stands before the first of these never changes: :meth:`frozen` computes it,
    and every other method takes its result in place of the inputs.

    Args:
        backbone: a Hugging Face model, frozen; LoRA matrices are added to it.
        n_outputs: width of the head's output.
        head: the task's kind of head (Appendix H), one of :attr:`heads`.
        head_on: "features" (the head reads the pooled features, the projection serves the
            alignment), "normalised" (these, each sample's with mean 0 and variance 1) or
            "representation".
        proj_dim: d of the paper.
        lora_layers: "attention" (queries and values) or "linear" (every linear layer; in a CNN the
            1 x 1 convolutions).
        lora_blocks: "all", "last" (:meth:`first_of_last`) or "none".
        lora_dropout: probability with which training drops an input of a LoRA matrix A.
        pooling: "mean" over positions, or "cls", the first token.
        precision: of the backbone's matrix products, by autocast; projection, head and every loss
            stay in float32.

    Attributes:
        heads: the kinds of head that the architecture can carry.
        reads: the modality of its inputs.
        has_cls: whether its first token stands for the whole input.
        stride: sides of the images that it reads are the multiples of this; None where the
            checkpoint's config fixes the side.
        attention: how the architecture calls the layers that make queries and values; empty if it
            has no attention.
        deep_embeddings: whether what stands before the first block is worth keeping even where
            every block is adapted.
        depth: how many blocks, counted from the first, training never changes.
        drops: whether training drops inputs of LoRA's matrices.
        read: blocks whose outputs the head reads beside the features, by index.
        memory_format: in which convolutions run.
        version: of what this class computes (see ``fedmuscle_lib.core.versions``).

    Raises:
        ValueError: the architecture has no layers of the kind ``lora_layers``, or no first token to
            pool.
    """

    heads: ClassVar[tuple[Head, ...]] = ("two layers", "linear")
    reads: ClassVar[Modality] = "images"
    has_cls: ClassVar[bool] = False
    stride: ClassVar[int | None] = None
    attention: ClassVar[tuple[str, ...]] = ()
    deep_embeddings: ClassVar[bool] = False
    backbone: Any
    read: tuple[int, ...] = ()
    memory_format: torch.memory_format = torch.contiguous_format

    def __init__(
        self,
        backbone: PreTrainedModel,
        n_outputs: int,
        *,
        head: Head = "two layers",
        proj_dim: int,
        rank: int,
        lora_alpha: int,
        lora_layers: Layers,
        lora_blocks: Blocks,
        head_hidden: int,
        head_on: HeadOn,
        pooling: Pooling = "mean",
        lora_dropout: float = 0.0,
        precision: Literal["float32", "bfloat16"] = "float32",
    ) -> None:
        super().__init__()
        if pooling == "cls" and not self.has_cls:
            raise ValueError(
                f"pooling: a {backbone.config.model_type} has no first token that stands for the"
                " whole input"
            )
        self.head_on, self.pooling, self.precision = head_on, pooling, precision
        width = self.width(backbone)
        self.backbone, self.drops, self._dropouts = backbone, lora_dropout > 0, list[nn.Module]()
        self.depth = self._adapt(lora_layers, lora_blocks, rank, lora_alpha, lora_dropout)
        self._blocks = [backbone.get_submodule(name) for name in self.block_names(backbone)]
        self.projection = nn.Linear(width, proj_dim)
        self.head = self.build_head(
            head,
            backbone,
            proj_dim if head_on == "representation" else width,
            head_hidden,
            n_outputs,
        )
        self._only_pooled = head in ("two layers", "linear")
        backbone.eval()
        self.train()

    def _adapt(self, layers: Layers, blocks: Blocks, rank: int, alpha: int, dropout: float) -> int:
        """Add LoRA matrices to the backbone; return the index of the first block that has some."""
        names = self.block_names(self.backbone)
        if blocks == "none":
            return len(names)
        chosen = names[self.first_of_last(self.backbone) :] if blocks == "last" else names
        linear = [name for name, module in self.backbone.named_modules() if _is_linear(module)]
        kept = [
            name
            for name in linear
            if layers == "linear" or name.rpartition(".")[2] in self.attention
        ]
        targets = [name for name in kept if any(_within(name, block) for block in chosen)]
        if not targets:
            raise ValueError(
                f"lora_layers: {self.backbone.config.model_type} has no layers of the kind"
                f" {layers!r}"
            )
        # in bfloat16 a sum with the weight would round the adapters away
        self._dropouts = adapt(
            self.backbone, targets, rank, alpha, merged=self.precision == "float32", dropout=dropout
        )
        return next(
            i for i, name in enumerate(names) if any(_within(target, name) for target in targets)
        )

    def train(self, mode: bool = True) -> UserModel:
        """Set training mode for the head and LoRA's dropout.

        The backbone stays in evaluation mode: the paper states no dropout.
        """
        self.training = mode
        for part in (
            self.projection,
            self.head,
            *self._dropouts,
        ):  # not the backbone: to visit its modules is 7 % of a step of mini
            part.train(mode)
        return self

    def width(self, backbone: PreTrainedModel) -> int:
        """Width of the pooled features."""
        return backbone.config.hidden_size

    @staticmethod
    def build_head(
        head: Head, backbone: PreTrainedModel, width: int, hidden: int, n_outputs: int
    ) -> nn.Module:
        """phi, freshly initialised from torch's global generator: "two linear layers with a ReLU in
        between", or one.
        """
        if head == "linear":
            return nn.Linear(width, n_outputs)
        return nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, n_outputs))

    # --- the backbone, part by part

    @staticmethod
    @abstractmethod
    def block_names(backbone: PreTrainedModel) -> list[str]:
        """Full names of the modules that are the backbone's blocks, from first to last."""

    @classmethod
    def first_of_last(cls, backbone: PreTrainedModel) -> int:
        """Index of the first block that ``lora_blocks="last"`` adapts: the last third of a
        transformer, at least one block.
        """
        blocks = len(cls.block_names(backbone))
        return blocks - max(1, round(blocks / 3))

    @abstractmethod
    def embed(self, inputs: Tensor) -> Tensor:
        """Return what the first block reads."""

    def block(self, index: int, hidden: Tensor, mask: Any) -> Tensor:
        """Return what a block makes of a hidden state."""
        return self._blocks[index](hidden)

    def mask(self, hidden: Tensor, state: State) -> Any:
        """The attention mask that all blocks read, if the architecture has one."""
        return None

    def finish(self, hidden: Tensor) -> Tensor:
        """Return what follows the last block."""
        return hidden

    @abstractmethod
    def pooled(self, hidden: Tensor, state: State) -> Tensor:
        """A hidden state -> (b, its width), as :attr:`pooling` says, in the projection's
        precision.
        """

    # --- what training never changes

    @torch.no_grad()
    def frozen(self, inputs: Tensor) -> State:
        """Everything before the first adapted layer, of a batch of what the model reads.

        Returns:
            "hidden", what the first adapted block reads; "map <i>", outputs of frozen blocks that
            the head reads; where no block is adapted and the head reads nothing else, "features"
            alone. All of them are (b, ...).
        """
        state = self.kept_inputs(inputs)
        with self.autocast(inputs):
            hidden = self.embed(inputs)
            mask = self.mask(hidden, state)
            for i in range(self.depth):
                hidden = self.block(i, hidden, mask)
                if i in self.read:
                    state[f"map {i}"] = hidden
        if self.depth < len(self._blocks) or not self._only_pooled:
            return state | {"hidden": hidden}
        return {"features": self._finished(hidden, state)}

    def kept_inputs(self, inputs: Tensor) -> State:
        """Return the parts of the inputs that the blocks need, such as token ids for the mask."""
        return {}

    def freeze_representation(self) -> None:
        """Train the head alone from here on."""
        for parameter in self.representation_parameters():
            parameter.requires_grad_(False)
        self.depth = len(self._blocks)

    @contextmanager
    def representation_frozen(self) -> Iterator[None]:
        """Train the head alone inside."""
        parameters, depth = self.representation_parameters(), self.depth
        self.freeze_representation()
        try:
            yield
        finally:
            self.depth = depth
            for parameter in parameters:
                parameter.requires_grad_(True)

    def _rest(self, state: State) -> list[Tensor]:
        """Hidden states: what the first adapted block reads, and what each adapted block makes of
        it.
        """
        hidden = state["hidden"]
        states = [hidden]
        with self.autocast(hidden):
            mask = self.mask(hidden, state)
            for i in range(self.depth, len(self._blocks)):
                hidden = self.block(i, hidden, mask)
                states.append(hidden)
        return states

    def _state(self, inputs: Tensor | State) -> State:
        return self.frozen(inputs) if isinstance(inputs, Tensor) else inputs

    # --- what the user and the federation ask for
    # ------------------------------------------------------------------------------ Each takes a
    # batch of what the model reads, or what `frozen` made of it.

    def features(self, inputs: Tensor | State) -> Tensor:
        """A batch -> (b, width), pooled."""
        state = self._state(inputs)
        return (
            state["features"]
            if "features" in state
            else self._finished(self._rest(state)[-1], state)
        )

    def _finished(self, hidden: Tensor, state: State) -> Tensor:
        with self.autocast(hidden):
            hidden = self.finish(hidden)
        return self.pooled(hidden, state)

    def represent(self, inputs: Tensor | State) -> Tensor:
        """The rows of Z^n: (b, d), unit norm."""
        return F.normalize(self.projection(self.features(inputs)), dim=-1)

    def forward(self, inputs: Tensor | State) -> Tensor:
        """The head's outputs for the user's task."""
        return self.outputs(self.features(inputs))

    def outputs(self, features: Tensor) -> Tensor:
        """The head's outputs from pooled features, (b, n_outputs)."""
        return self.head(self.read_by_head(features))

    def read_by_head(self, features: Tensor) -> Tensor:
        """What the head reads of pooled features, as :attr:`head_on` says."""
        if self.head_on == "representation":
            return self.projection(features)
        return (
            F.layer_norm(features, features.shape[-1:])
            if self.head_on == "normalised"
            else features
        )

    def forward_with_levels(self, inputs: Tensor | State) -> tuple[Tensor, list[Tensor]]:
        """The head's outputs, and features from shallow to deep: after each quarter of the adapted
        blocks, then the projection.

        Each is (b, its width), pooled as the features are. Where fewer than four blocks are
        adapted, there are fewer of them.

        Raises:
            ValueError: the architecture has no levels that would be comparable.
        """
        if self.reads != "images" or self.read:
            raise ValueError(f"a {type(self).__name__} has no levels of features to contrast")
        state = self._state(inputs)
        if "features" in state:
            features, shallow = state["features"], []
        else:
            states = self._rest(state)
            shallow = [self.pooled(states[block], state) for block in depths(len(states) - 1)]
            features = self._finished(states[-1], state)
        return self.outputs(features), [*shallow, self.projection(features)]

    def autocast(self, inputs: Tensor) -> AbstractContextManager:
        """The context in which the backbone runs."""
        return torch.autocast(
            inputs.device.type, torch.bfloat16, enabled=self.precision == "bfloat16"
        )

    def representation_parameters(self) -> list[nn.Parameter]:
        """The trainable part of w: LoRA and projection."""
        return [p for p in self.backbone.parameters() if p.requires_grad] + list(
            self.projection.parameters()
        )

    def trainable_state(self) -> dict[str, Tensor]:
        """Return what training changes, by name: trainable weights and the head's buffers.

        The frozen backbone is left out.
        """
        state = {name: p.detach() for name, p in self.named_parameters() if p.requires_grad}
        return state | {f"head.{name}": b for name, b in self.head.named_buffers()}


def depths(blocks: int) -> list[int]:
    """The blocks, counted from 1, that end each quarter of them; fewer than four where there are
    fewer blocks.
    """
    return sorted({math.ceil(blocks * part / 4) for part in (1, 2, 3, 4)} if blocks else set())


def _is_linear(module: nn.Module) -> bool:
    """Return whether a layer is linear in each position: its LoRA matrices then are two such
    layers.
    """
    one_by_one = (
        isinstance(module, nn.Conv2d) and module.kernel_size == (1, 1) and module.groups == 1
    )
    return isinstance(module, nn.Linear | Conv1D) or one_by_one


def _within(name: str, module: str) -> bool:
    """Return whether the module called ``name`` is ``module`` or a part of it."""
    return name == module or name.startswith(f"{module}.")
