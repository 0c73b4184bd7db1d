"""Networks from scratch: their shapes, their sizes, and what they read."""

import pytest
import torch
from torch import nn

from fedmuscle_lib.fedloge.networks import NETWORKS


@pytest.mark.parametrize("side", [16, 28, 32])
@pytest.mark.parametrize("name, dim", [("small_cnn", 64), ("wide_cnn", 128), ("resnet18", 512)])
def test_features_are_d_numbers_from_0_for_any_side(name, dim, side):
    network = NETWORKS[name]()
    assert network.dim == dim
    features = network(torch.rand(2, 3, side, side))
    assert features.shape == (2, dim) and features.min() >= 0
    features.sum().backward()
    assert all(p.grad is not None for p in network.parameters())


@pytest.mark.parametrize(
    "name, parameters",
    [("resnet18", 11_173_962), ("resnet34", 21_282_122), ("resnet50", 23_528_522)],
)
def test_resnets_have_the_known_number_of_parameters_with_ten_classes(name, parameters):
    with torch.device("meta"):
        network = NETWORKS[name]()
        model = nn.Sequential(network, nn.Linear(network.dim, 10))
    assert sum(p.numel() for p in model.parameters()) == parameters
