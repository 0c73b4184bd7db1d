"""The benchmarks measure what they say, on a cell or a user that takes no time; what they find is
for a quiet machine.
"""

import pytest
import torch

from fedmuscle_lib import Settings
from fedmuscle_lib.bench import bench_local, bench_loss, bench_step


def test_bench_loss_compares_both_forms_where_the_dense_one_can_run(capsys):
    threads = torch.get_num_threads()
    table = bench_loss((2, 5), (16, 32), dim=64, rounds=1, threads=1).set_index(["m", "b"])
    small, large = table.loc[(2, 16)], table.loc[(5, 32)]
    assert small.speedup == pytest.approx(small.dense_ms / small.library_ms)
    assert small.memory_ratio == pytest.approx(small.dense_mb / small.library_mb)
    assert small.memory_ratio > 1
    assert large[["dense_ms", "speedup"]].isna().all() and large.library_ms > 0
    assert torch.get_num_threads() == threads and "speedup" in capsys.readouterr().out


def test_bench_step_times_every_user(small_world, counted):
    places = {"data_dir": small_world, "models_path": small_world / "models"}
    table = bench_step(Settings(users=(2, 6), others=1, **places), rounds=1)
    assert list(table.user) == [2, 6]
    assert (table[["forward_ms", "loss_ms", "plain_ms", "library_ms"]] > 0).all(axis=None)
    assert table.speedup.tolist() == pytest.approx((table.plain_ms / table.library_ms).tolist())


def test_bench_local_has_the_forms_of_each_model(small_world):
    own = {"others": 1, "data_dir": small_world, "models_path": small_world / "models"}
    table = bench_local(Settings(users=(5, 6), lora_blocks="last", **own), rounds=1)
    assert table.form.tolist() == 2 * ["frozen once", "LoRA"]
    assert table.speedup.tolist() == pytest.approx((table.plain_ms / table.library_ms).tolist())
    whole = bench_local(Settings(users=(5, 6), lora_blocks="all", **own), rounds=1)
    assert whole.form.tolist() == 2 * ["LoRA"]  # nothing but the head's inputs is frozen
