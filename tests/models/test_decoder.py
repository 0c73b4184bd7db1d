import copy

import pytest
import torch
from torch import Tensor
from transformers import SegformerConfig
from transformers.models.segformer.modeling_segformer import SegformerDecodeHead

from fedmuscle_lib.models.decoder import decode

WIDTHS = [3, 5, 8, 13]


@pytest.fixture(
    params=[[(12, 12), (6, 6), (3, 3), (2, 2)], [(8, 12), (4, 6), (4, 6), (2, 3)]],
    ids=["square", "oblong"],
)
def maps(request) -> list[Tensor]:
    draw = torch.Generator().manual_seed(1)
    sizes = zip(WIDTHS, request.param, strict=True)
    return [
        torch.randn(4, width, *size, generator=draw, dtype=torch.float64, requires_grad=True)
        for width, size in sizes
    ]


@pytest.mark.parametrize("train", [True, False])
def test_values_and_gradients_are_those_of_the_original(maps, train):
    config = SegformerConfig(
        hidden_sizes=WIDTHS, decoder_hidden_size=7, classifier_dropout_prob=0.0, num_labels=6
    )
    torch.manual_seed(0)
    original = SegformerDecodeHead(config).double().train(train)
    ours = copy.deepcopy(original)
    weights = torch.randn(4, 6, *maps[0].shape[2:], dtype=torch.float64)

    values, gradients = [], []
    for head, outputs in ((original, original(maps)), (ours, decode(ours, maps))):
        values.append(outputs)
        gradients.append(
            torch.autograd.grad((outputs * weights).sum(), [*maps, *head.parameters()])
        )

    torch.testing.assert_close(values[1], values[0], rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(
        ours.state_dict(), original.state_dict(), rtol=1e-10, atol=1e-10
    )  # batch norm's statistics
