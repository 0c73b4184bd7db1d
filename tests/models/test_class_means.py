"""Few-shot accuracy: known answers on made-up features."""

import pytest
import torch

from fedmuscle_lib.core.errors import DataError
from fedmuscle_lib.data.samples import Samples
from fedmuscle_lib.models import few_shot
from fedmuscle_lib.models.class_means import nearest_class_mean

CORNERS = torch.tensor([[1.0, 0, 0], [0, 1, 0], [0, 0, 1]])


def test_the_nearest_class_mean_is_that_of_centred_directions():
    train = Samples(torch.cat([CORNERS, 3 * CORNERS]), torch.tensor([4, 7, 9] * 2))
    test = Samples(
        torch.tensor([[5.0, 1, 1], [0, 2, 0], [3, 4, 3], [0, 1, 2]]), torch.tensor([4, 7, 9, 9])
    )
    assert nearest_class_mean(train, test) == 75  # the third is nearest to 7
    shifted = [Samples(samples.inputs + 10, samples.targets) for samples in (train, test)]
    assert nearest_class_mean(*shifted) == 75


def test_one_shot_is_right_where_classes_are_apart_and_chance_where_they_are_not():
    labels = torch.arange(3).repeat_interleave(20)
    noise = 0.01 * torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
    apart = Samples(CORNERS[labels] + noise, labels)
    assert few_shot(apart, apart, 3) == 100
    alike = Samples(noise, labels)
    assert 20 < few_shot(alike, alike, 3) < 50
    assert few_shot(alike, alike, 3) == few_shot(alike, alike, 3)
    with pytest.raises(DataError, match="holds 60 samples"):
        few_shot(apart, apart, 61)
