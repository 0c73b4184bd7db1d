"""How far users agree: known values, who looks wrong, and what a server makes of it."""

from __future__ import annotations

import logging

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from fedmuscle_lib.fedmuscle.messages import Batch
from fedmuscle_lib.fedmuscle.objectives import cka
from fedmuscle_lib.fedmuscle.outliers import (
    FEWEST,
    LASTING,
    MEASURES,
    measured,
    remark,
    suspicion,
    suspicions,
)
from fedmuscle_lib.fedmuscle.server import Server

B, D = 32, 64
USERS = (1, 2, 3, 4, 5, 6)


def users(seed: int = 0, aligned: float = 1.0, n: int = len(USERS)) -> Tensor:
    """Representations (n, b, d) of users who see the same samples: a common part, the user's own
    noise, and a rotation of its own.
    """
    generator = torch.Generator().manual_seed(seed)
    spaces = torch.Generator().manual_seed(99)  # a user's space is the same on every batch
    common, own = (
        torch.randn(B, D, generator=generator),
        torch.randn(n, B, D, generator=generator) / 2,
    )
    rotations = torch.linalg.qr(torch.randn(n, D, D, generator=spaces)).Q
    return normalize(aligned * (common + own) + (1 - aligned) * (common + own) @ rotations, dim=-1)


def constant(z: Tensor, others: Tensor, seed: int) -> Tensor:
    return torch.eye(D)[:1].expand(B, D)


def shuffled(z: Tensor, others: Tensor, seed: int) -> Tensor:
    return z[torch.randperm(B, generator=torch.Generator().manual_seed(seed))]


def noise(z: Tensor, others: Tensor, seed: int) -> Tensor:
    return normalize(
        torch.randn(B, D, generator=torch.Generator().manual_seed(seed + 1000)), dim=-1
    )


def two_poles(z: Tensor, others: Tensor, seed: int) -> Tensor:
    return (
        torch.eye(D)[:1]
        * torch.randn(B, 1, generator=torch.Generator().manual_seed(seed + 1000)).sign()
    )


def negated(z: Tensor, others: Tensor, seed: int) -> Tensor:
    return -z


def opposed(z: Tensor, others: Tensor, seed: int) -> Tensor:
    return -normalize(others.mean(0), dim=-1)


HOSTILE = {
    constant: "look constant",
    shuffled: "look unrelated to the other users'",
    noise: "look unrelated to the other users'",
    two_poles: "look unrelated to the other users'",
    negated: "are turned away from the other users'",
    opposed: "are turned away from the other users'",
}
by_kind = pytest.mark.parametrize("kind", HOSTILE, ids=lambda kind: kind.__name__)


# --- measures


def test_measures_are_their_definitions():
    """Pair by pair and sample by sample."""
    z = users(aligned=0.7, n=4)
    for n, (agreement, retrieval, spread) in enumerate(measured(z).T.tolist()):
        others = [m for m in range(4) if m != n]
        grams = [
            cka(
                z[n].double() @ z[n].double().T, z[m].double() @ z[m].double().T, debiased=True
            ).item()
            for m in others
        ]
        assert agreement == pytest.approx(sorted(grams)[1], abs=1e-5)
        ranks = []
        for m in others:
            similarity = z[n] @ z[m].T
            ranks.append(
                sum(float(similarity[i, j] < similarity[i, i]) for i in range(B) for j in range(B))
                / B
                / (B - 1)
            )
        assert retrieval == pytest.approx(sorted(ranks)[1], abs=1e-6)
        assert spread == pytest.approx(
            torch.cdist(z[n], z[n].mean(0, keepdim=True)).square().mean().item(), abs=1e-5
        )


def test_equal_users_agree_wholly_and_a_constant_with_nobody():
    z = users(n=1).expand(5, B, D)
    torch.testing.assert_close(
        measured(z)[:2], torch.ones(2, 5, dtype=torch.float64), rtol=0, atol=1e-6
    )
    z = torch.cat([z[:4], constant(z, z, 0)[None]])
    torch.testing.assert_close(
        measured(z)[:, 4], torch.tensor([0.0, 0.5, 0.0], dtype=torch.float64), rtol=0, atol=1e-6
    )


def test_users_who_were_never_aligned_agree_by_their_gram_matrices_alone():
    agreement, retrieval, _ = measured(users(aligned=0.0))
    assert (agreement > 0.3).all() and ((retrieval - 0.5).abs() < 0.1).all()


@by_kind
@pytest.mark.parametrize("hostile", [(4,), (1, 4)], ids=str)
def test_a_minority_of_hostile_users_looks_wrong_and_nobody_else_does(kind, hostile):
    """Also where the two send the same, and so agree wholly with each other."""
    total = torch.zeros(3, len(USERS), dtype=torch.float64)
    for seed in range(FEWEST // B):
        z = users(seed, aligned=0.8)
        honest = z[[n for n in range(len(USERS)) if n not in hostile]]
        z[list(hostile)] = kind(z[hostile[0]], honest, seed)
        total += measured(z) * B / FEWEST
    found = [suspicion(dict(zip(MEASURES, of, strict=True))) for of in total.T.tolist()]
    assert found == [HOSTILE[kind] if n in hostile else "" for n in range(len(USERS))]


def test_a_remark_counts_rounds():
    rows = [
        {"round": round, "user": user, "measure": measure, "value": value}
        for round in (1, 2, 3)
        for user in (4, 5)
        for measure, value in zip(
            MEASURES, (0.0 if user == 5 and round > 1 else 0.5, 0.6, 0.7), strict=True
        )
    ]
    assert list(suspicions(rows)) == [(2, 5), (3, 5)]
    assert (
        remark(rows)
        == "The representations of user 5 look unrelated to the other users' in 2 rounds."
    )
    other = [row | {"measure": "accuracy of somebody's own"} for row in rows]
    assert not suspicions(other) and remark([]) == ""


# --- the server


def played(
    server: Server, round: int, batches: int, kinds: dict[int, object]
) -> list[dict[int, tuple[int, ...]]]:
    """Let users send batches of a round; return whom each is then aligned with, batch by batch."""
    drawn = []
    for position in range(batches):
        batch = Batch(round, 0, position, B)
        server.open(batch)
        z = users(100 * round + position, aligned=0.8)
        for user in server.users:
            kind = kinds.get(user)
            server.receive(user, batch, kind(z[user - 1], z, position) if kind else z[user - 1])
        drawn.append({user: server.draw_others(user, round, 0) for user in server.users})
    server.judge(round)
    return drawn


def server(robust: bool, others: int = 3) -> Server:
    return Server(USERS, others, D, (0,), robust=robust)


def test_what_was_measured_is_kept_by_round_and_user():
    one = server(False)
    for round in range(3):
        played(one, round, 4, {5: shuffled})
    assert {(row["round"], row["user"], row["measure"]) for row in one.measures} == {
        (round, user, measure) for round in range(3) for user in USERS for measure in MEASURES
    }
    assert list(suspicions(one.measures)) == [(0, 5), (1, 5), (2, 5)]


def test_a_warning_tells_once_of_those_who_look_wrong_round_after_round(caplog):
    one = server(False)
    with caplog.at_level(logging.WARNING):
        for round in range(LASTING + 2):
            played(one, round, 4, {2: shuffled, 5: shuffled} if round else {5: shuffled})
        for round in range(LASTING + 2, 2 * LASTING + 1):
            played(one, round, 4, {5: constant})  # not as long
    told = [record.getMessage() for record in caplog.records]
    assert {record.name for record in caplog.records} == {"fedmuscle"}  # whose lines commands show
    assert told == [
        f"round {LASTING + late}: for {LASTING} rounds the representations of user {user} look"
        " unrelated to the other users'; others are aligned with them all the same, as robust"
        " is off"
        for late, user in ((0, 5), (1, 2))
    ]


def test_honest_users_are_told_of_nothing(caplog):
    with caplog.at_level(logging.WARNING):
        played(server(True), 0, 8, {})
    assert not caplog.records


@by_kind
def test_a_robust_server_passes_over_who_looks_wrong(kind):
    """As soon as there are enough samples, and from the next round's first batch on; with too few,
    nobody.
    """
    plain, robust = (server(value) for value in (False, True))
    for round in range(2):
        before, after = (played(one, round, 5, {2: kind, 5: kind}) for one in (plain, robust))
        for position, (usual, passed) in enumerate(zip(before, after, strict=True)):
            if not round and position < FEWEST // B - 1:
                assert passed == usual
            else:
                assert all(
                    len(others) == 3 and not {2, 5} & set(others)
                    for user, others in passed.items()
                    if user not in (2, 5)
                )
    assert plain.measures == robust.measures


def test_who_returns_to_honesty_is_aligned_with_again():
    one = server(True, others=5)
    played(one, 0, 4, {5: noise})
    first, *_, last = played(one, 1, 5, {})
    assert 5 not in first[1] and 5 in last[1]


def test_nobody_is_passed_over_where_half_look_wrong(caplog):
    with caplog.at_level(logging.WARNING):
        one = server(True, others=5)
        for round in range(LASTING):
            for drawn in played(one, round, 5, {1: noise, 3: shuffled, 5: constant}):
                assert all(len(others) == 5 for others in drawn.values())
    assert (
        len(caplog.records) == 2 and "users 1, " in caplog.records[0].getMessage()
    )  # a line for each reason, and not for each user
    assert all("passes over nobody" in record.getMessage() for record in caplog.records)


def test_a_robust_server_goes_on_as_if_it_had_never_stopped():
    whole, first, second = server(True), server(True), server(True)
    kinds = {5: negated}
    played(whole, 0, 4, kinds)
    played(first, 0, 4, kinds)
    second.measures += first.measures
    assert played(whole, 1, 5, kinds) == played(second, 1, 5, kinds)
    assert whole.measures == second.measures


def test_of_two_users_nobody_is_odd():
    one = Server((1, 2), 1, D, (0,), robust=True)
    played(one, 0, 5, {2: noise})
    assert not one.measures
