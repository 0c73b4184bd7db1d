"""The benchmarks measure what they say, on a cell or a user that takes no time; what they find is for a quiet machine."""

import pytest

from fedmuscle_lib import Settings
from fedmuscle_lib.bench import bench_loss, bench_step


def test_bench_loss_compares_both_forms_or_says_why_not():
    table = bench_loss(members=(2, 5), batches=(16, 32), rounds=1, threads=1, dense_limit_gb=0.01, verbose=False).set_index(["m", "b"])
    small = table.loc[(2, 16)]
    assert small.speedup == pytest.approx(small.dense_ms / small.library_ms)
    assert small.memory_ratio == pytest.approx(small.dense_mb / small.library_mb) and small.memory_ratio > 1
    assert "cannot run" in table.loc[(5, 16)].note and table.loc[(5, 16)].library_ms > 0


def test_bench_step_times_every_user(mini_world):
    settings = Settings(users=(2, 6), others=1, data_dir=mini_world, models_path=mini_world / "models")
    table = bench_step(settings, rounds=1, verbose=False)
    assert list(table.user) == [2, 6]
    assert (table.filter(like="_ms") > 0).all(axis=None) and table.filter(like="_ms").shape[1] == 8
    assert table.speedup.tolist() == pytest.approx((table.readme_ms / table.library_ms).tolist())
    assert (table.readme_ms > table.forward_ms).all()  # it holds two of them
    assert table.head_speedup.tolist() == pytest.approx((table.head_again_ms / table.head_ms).tolist())
    assert (table.states_mb == 0).all()  # LoRA in all blocks: nothing is kept


def test_an_alignment_step_has_the_public_batch(mini_world):
    own = {"users": (2, 6), "others": 1, "data_dir": mini_world, "models_path": mini_world / "models"}
    whole, part = (bench_step(Settings(**own, public_batch_size=size), rounds=1, verbose=False) for size in (32, 8))
    # but for the products of small LoRA matrices with each other, which no sample takes part in
    assert part.gflop.tolist() == pytest.approx((whole.gflop / 4).tolist(), rel=0.05)
