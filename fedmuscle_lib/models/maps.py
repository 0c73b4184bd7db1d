"""Models whose hidden states are feature maps, and which a decoder can read at four strides."""

from __future__ import annotations

from torch import Tensor
from transformers.models.segformer.modeling_segformer import SegformerDecodeHead

from fedmuscle_lib.models.base import State, UserModel
from fedmuscle_lib.models.decoder import decode


class FeatureMaps(UserModel):
    """Hidden states are (b, width, h, w). Features are the mean over all positions of the last map.

    With a decoder the outputs are (b, classes, h/4, w/4). The decoder reads four maps, which
    :attr:`read` names, the last one among them.
    """

    def pooled(self, hidden: Tensor, state: State) -> Tensor:
        return hidden.mean((2, 3), dtype=self.projection.weight.dtype)

    def forward(self, inputs: Tensor | State) -> Tensor:
        if not isinstance(self.head, SegformerDecodeHead):
            return super().forward(inputs)
        return decode(self.head, self.maps(inputs))

    def maps(self, inputs: Tensor | State) -> list[Tensor]:
        """Return what the decoder reads, from fine to coarse: four maps (b, width, h, w) in the
        projection's precision. Those of frozen blocks come first.
        """
        state = self._state(inputs)
        made = self._rest(state)
        maps = (
            state[f"map {i}"] if i < self.depth else made[i - self.depth + 1] for i in self.read
        )
        return [found.to(self.projection.weight.dtype) for found in maps]
