"""The plain form computes the same round, and the benchmark says of both what it measured."""

import pytest
import torch
import toy

from fedmuscle_lib.__main__ import main
from fedmuscle_lib.cli.bench import BENCHES
from fedmuscle_lib.fedloge.bench import PARTS, PlainData, PlainNetwork, bench_fedloge, in_plain_form
from fedmuscle_lib.fedloge.networks import NETWORKS
from fedmuscle_lib.fedloge.settings import Settings


@pytest.mark.parametrize("name", ["fedloge", "ditto", "fedbabu"])
def test_a_round_in_plain_form_ends_with_the_same_weights(name):
    library, plain = toy.federation(name), in_plain_form(toy.federation(name))
    assert library.round(0) == pytest.approx(plain.round(0), rel=1e-4)
    torch.testing.assert_close(toy.tensors(library), toy.tensors(plain), rtol=1e-3, atol=1e-5)
    assert all(isinstance(client.data, PlainData) for client in plain.clients.values())
    values = [[row["value"] for row in each.evaluate(1)] for each in (library, plain)]
    assert values[0] == values[1]


@pytest.mark.parametrize("name", ["small_cnn", "resnet18"])
def test_networks_agree_with_the_textbooks_order_forward_and_backward(name):
    found = []
    for kind in (None, PlainNetwork):
        torch.manual_seed(0)
        network = NETWORKS[name]().double()
        network.__class__ = kind or network.__class__
        images = torch.rand(4, 3, 8, 8, dtype=torch.float64, requires_grad=True)
        features = network(images)
        found.append(
            [
                features,
                *torch.autograd.grad(features.square().sum(), [images, *network.parameters()]),
            ]
        )
    torch.testing.assert_close(*found)


def test_bench_fedloge_has_a_round_its_data_and_its_evaluation(monkeypatch, capsys):
    monkeypatch.setattr(
        "fedmuscle_lib.fedloge.bench.build", lambda settings: toy.federation(settings.algorithm)
    )
    table = bench_fedloge(Settings(), pairs=1)
    assert table.what.tolist() == ["data", "round", "evaluation"]
    assert (
        table.speedup.tolist() == pytest.approx((table.plain_ms / table.library_ms).tolist())
        and (table.speedup > 0).all()
    )
    printed = capsys.readouterr().out
    assert all(f"{part} " in printed for part in PARTS) and "times as fast" in printed


def test_the_command_reads_settings_of_this_system(monkeypatch):
    measured = []
    monkeypatch.setitem(BENCHES, "fedloge", (BENCHES["fedloge"][0], measured.append))
    assert main(["bench", "fedloge", "-p", "algorithm=ditto", "-p", "clients=7"]) == 0
    assert [(settings.algorithm, settings.clients) for settings in measured] == [("ditto", 7)]
