"""What checkpoints are worth to users before any training."""

import pytest
import torch

from fedmuscle_lib.core.errors import DataError
from fedmuscle_lib.data.samples import Samples
from fedmuscle_lib.fedmuscle.one_shot import few_shot, nearest_class_mean, one_shot

CORNERS = torch.tensor([[1.0, 0, 0], [0, 1, 0], [0, 0, 1]])


def test_every_checkpoint_of_users_with_images_is_measured_on_ic100(settings, monkeypatch):
    monkeypatch.setattr("fedmuscle_lib.fedmuscle.one_shot.DRAWS", 2)
    monkeypatch.setattr("fedmuscle_lib.fedmuscle.one_shot.TESTS", 200)
    found = one_shot(settings(setup="setup2", public="flickr30k", users=(5, 6, 7, 9)))
    assert set(found) == {"vit-small", "vit-tiny"}  # one segments, one reads texts
    assert all(3 < value < 100 for value in found.values())  # chance is 1


def test_absent_data_are_named_and_nothing_is_measured(settings, tmp_path, caplog):
    assert one_shot(settings(data_dir=tmp_path)) == one_shot(settings(users=(1, 2, 6))) == {}
    assert "one-shot accuracy is not measured: " in caplog.text and "CIFAR100" in caplog.text


def test_the_nearest_class_mean_is_that_of_centred_directions():
    train = Samples(torch.cat([CORNERS, 3 * CORNERS]), torch.tensor([4, 7, 9] * 2))
    inputs = torch.tensor([[5.0, 1, 1], [0, 2, 0], [3, 4, 3], [0, 1, 2]])
    test = Samples(inputs, torch.tensor([4, 7, 9, 9]))
    assert nearest_class_mean(train, test) == 75  # the third is nearest to 7


def test_few_shots_are_right_where_classes_are_apart():
    labels = torch.arange(3).repeat_interleave(20)
    noise = 0.01 * torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
    apart, alike = Samples(CORNERS[labels] + noise, labels), Samples(noise, labels)
    assert few_shot(apart, apart, 3) == 100 and 20 < few_shot(alike, alike, 3) < 50
    with pytest.raises(DataError, match="holds 60 samples"):
        few_shot(apart, apart, 61)
