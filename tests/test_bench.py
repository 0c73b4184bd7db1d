"""The benchmarks measure what they say, on a cell or a user that takes no time; what they find is
for a quiet machine.
"""

import math

import pandas as pd
import pytest
import torch

from fedmuscle_lib import Settings
from fedmuscle_lib.__main__ import main
from fedmuscle_lib.bench import (
    Trusting,
    bench_checks,
    bench_local,
    bench_loss,
    bench_order,
    bench_step,
    cost_of_checks,
)
from fedmuscle_lib.fedmuscle import algorithms
from fedmuscle_lib.fedmuscle.algorithms import Federation
from fedmuscle_lib.fedmuscle.build import build


def test_bench_loss_compares_both_forms_or_says_why_not(capsys):
    threads = torch.get_num_threads()
    table = bench_loss(
        members=(2, 5), batches=(16, 32), rounds=1, threads=1, dense_limit_gb=0.01
    ).set_index(["m", "b"])
    small = table.loc[(2, 16)]
    assert small.speedup == pytest.approx(small.dense_ms / small.library_ms)
    assert (
        small.memory_ratio == pytest.approx(small.dense_mb / small.library_mb)
        and small.memory_ratio > 1
    )
    assert "cannot run" in table.loc[(5, 16)].note and table.loc[(5, 16)].library_ms > 0
    assert torch.get_num_threads() == threads and "speedup" in capsys.readouterr().out


def test_bench_step_times_every_user_with_the_public_batch(small_world, counted):
    own = {
        "users": (2, 6),
        "others": 1,
        "data_dir": small_world,
        "models_path": small_world / "models",
    }
    whole, part = (
        bench_step(Settings(**own, public_batch_size=size), rounds=1) for size in (32, 8)
    )
    assert list(whole.user) == [2, 6]
    assert (whole.filter(like="_ms") > 0).all(axis=None) and whole.filter(like="_ms").shape[1] == 5
    assert whole.speedup.tolist() == pytest.approx((whole.readme_ms / whole.library_ms).tolist())
    assert (whole.readme_ms > whole.forward_ms).all()  # it holds two of them
    # but for the products of LoRA matrices with each other, which no sample takes part in
    assert part.gflop.tolist() == pytest.approx((whole.gflop / 4).tolist(), rel=0.1)


def test_honest_users_end_with_the_same_weights_whether_the_server_checks_or_not(settings):
    one = settings(users=(2, 5, 6), public_size=64)
    federations = [build(one), build(one)]
    server = federations[1].server
    federations[1] = Federation(
        federations[1].clients, Trusting(server.users, server.others, server.dim, server.address)
    )
    losses = [
        [algorithms.get("fedmuscle")(one).communicate(each, round) for round in range(2)]
        for each in federations
    ]
    assert losses[0] == losses[1]
    for checked, trusted in zip(*(each.clients for each in federations), strict=True):
        torch.testing.assert_close(
            checked.model.trainable_state(), trusted.model.trainable_state(), rtol=0, atol=0
        )
    assert federations[0].server.uplink and not federations[1].server.uplink
    assert len(federations[0].server.uplink) == 3 * 2


def test_a_trusting_server_hands_on_whatever_it_gets():
    server = Trusting([2, 5], others=1, dim=4, address=(0,))
    server.receive(5, None, mistake := torch.full((3, 2), math.nan))
    assert server.current(5) is mistake


def test_bench_checks_pairs_a_round_with_one_of_a_trusting_server(settings, monkeypatch, capsys):
    judged = []
    monkeypatch.setattr(
        "fedmuscle_lib.fedmuscle.server.Server.judge", lambda server, round: judged.append(round)
    )
    monkeypatch.setattr(
        "fedmuscle_lib.fedmuscle.client.Client.check_weights",
        lambda client: judged.append(client.user.number),
    )
    table = bench_checks(settings(users=(2, 5, 6), public_batch_size=8, public_size=24), pairs=2)
    assert (
        len(table) == 2
        and (table > 0).all(axis=None)
        and list(table) == ["checked_ms", "trusting_ms"]
    )
    assert (
        judged == [0, 2, 5, 6] * 3
    )  # at the end of a round, as in a run; one round before the pairs
    assert "2 interleaved pairs of rounds, 3 batches each" in capsys.readouterr().out


def test_the_command_step_ends_with_the_cost_of_checks(monkeypatch):
    measured = []
    for name in ("bench_step", "bench_checks"):
        monkeypatch.setattr(
            f"fedmuscle_lib.bench.{name}",
            lambda settings, name=name: measured.append((name, settings.robust)),
        )
    assert main(["bench", "step", "-p", "robust=1"]) == 0
    assert measured == [("bench_step", 1), ("bench_checks", 1)]


def test_the_cost_of_checks_is_the_mean_of_pairs_with_the_interval_of_student():
    pairs = pd.DataFrame(
        {"trusting_ms": [10.0, 20.0], "checked_ms": [10 * math.exp(0.01), 20 * math.exp(0.03)]}
    )
    half = 12.7062 * 0.01  # t of one degree of freedom, and the standard error of 0.01 and 0.03
    wanted = [math.exp(0.02) - 1, math.exp(0.02 - half) - 1, math.exp(0.02 + half) - 1]
    assert cost_of_checks(pairs) == pytest.approx(wanted, rel=1e-4)


def test_bench_order_has_a_row_for_each_number_of_users(capsys):
    table = bench_order((2, 3), samples=16, dim=4, threads=1, device="cpu", seed=0)
    assert table.users.tolist() == [2, 3] and (table.ms_a_pair > 0).all()
    assert "d = 4" in capsys.readouterr().out


def test_bench_local_has_the_forms_of_each_model(small_world):
    own = {"others": 1, "data_dir": small_world, "models_path": small_world / "models"}
    table = bench_local(
        Settings(setup="setup2", users=(6, 7), public="flickr30k", lora_blocks="all", **own),
        rounds=1,
    )
    found = {user: set(rows.form) for user, rows in table.groupby("user")}
    assert found == {
        6: {"head alone", "LoRA"},
        7: {"head alone", "LoRA", "decoder"},
    }  # LoRA in all blocks: nothing else is frozen
    assert (table[["library_ms", "plain_ms"]] > 0).all(axis=None)
    assert table.speedup.tolist() == pytest.approx((table.plain_ms / table.library_ms).tolist())
    assert (table.states_mb.notna() == (table.form == "head alone")).all()
    some = bench_local(Settings(users=(5, 6), lora_blocks="last", **own), rounds=1)
    assert (
        some.form.tolist() == 2 * ["frozen once", "head alone", "LoRA"]
        and (some.states_mb[:2] > 0).all()
    )
