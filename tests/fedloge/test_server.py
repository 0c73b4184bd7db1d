"""The server: who takes part, and what a mean is."""

from __future__ import annotations

import pytest
import torch

from fedmuscle_lib.fedloge.server import Server


def tensors(value: float = 0.0) -> dict[str, torch.Tensor]:
    return {
        "w": torch.full((2, 3), value),
        "running_mean": torch.full((3,), 10 * value),
        "batches": torch.tensor(int(value)),
    }


def server(clients=(0, 1, 2), participation=1.0, seed=0) -> Server:
    return Server(clients, tensors(), participation, (seed,))


# --- who takes part


@pytest.mark.parametrize(
    "clients, share, count",
    [(40, 0.3, 12), (40, 0.2, 8), (100, 0.29, 29), (10, 0.55, 5), (20, 1.0, 20), (5, 0.01, 1)],
)
def test_the_whole_part_of_the_share_takes_part_and_at_least_one(clients, share, count):
    drawn = [server(range(clients), share).participants(round) for round in range(50)]
    assert all(len(set(each)) == len(each) == count for each in drawn)
    assert {client for each in drawn for client in each} <= set(range(clients))
    assert len(set(drawn)) == 1 or count < clients


# --- the mean


def test_the_mean_weighs_each_client_by_its_samples_buffers_included():
    one = server((4, 9))
    for client, value, samples in ((9, 4.0, 30), (4, 8.0, 10)):
        one.send(client, 0)
        one.receive(client, 0, tensors(value), samples)
    one.aggregate()
    assert torch.equal(one.tensors["w"], torch.full((2, 3), 5.0))
    assert torch.equal(one.tensors["running_mean"], torch.full((3,), 50.0))
    assert one.tensors["batches"].dtype == torch.int64 and one.tensors["batches"] == 5
