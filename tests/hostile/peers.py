"""Hostile users in a federation of six, and what honest users lose to them with and without ``robust``.

``python tests/hostile/peers.py --rounds 20 --seeds 100,101`` prints a table; all other flags have defaults, see ``--help``.
"""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Callable
from statistics import fmean
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from fedmuscle_lib.core.randomness import generator
from fedmuscle_lib.core.torch_state import fixed_state
from fedmuscle_lib.fedmuscle.algorithms import Federation
from fedmuscle_lib.fedmuscle.client import Client
from fedmuscle_lib.fedmuscle.messages import Reply
from fedmuscle_lib.fedmuscle.outliers import MEASURES, suspicions
from fedmuscle_lib.fedmuscle.rounds import Rounds
from fedmuscle_lib.fedmuscle.settings import Settings


def _code(z: Tensor, rows: Tensor) -> Tensor:
    """A vector of its own for each public sample, in every round the same: colluding users agree, and their code can be learnt."""
    return torch.stack([normalize(torch.randn(z.shape[1], generator=generator("code", int(row))), dim=0) for row in rows])


KINDS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "constant": lambda z, rows: torch.eye(z.shape[1])[:1].expand(z.shape),
    "two poles": lambda z, rows: torch.eye(z.shape[1])[:1] * _code(z, rows)[:, :1].sign(),
    "shuffled": lambda z, rows: z[torch.randperm(len(z), generator=generator("shuffled", *rows.tolist()))],
    "code": _code,
    "negated": lambda z, rows: -z,
}


class Hostile:
    """A client that sends something else than its representations and learns from no reply."""

    def __init__(self, client: Client, kind: str) -> None:
        self._client, self._change = client, KINDS[kind]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def represent(self, rows: Tensor) -> Tensor:
        return self._change(self._client.represent(rows), rows)

    def align(self, reply: Reply) -> float:
        return 0.0


def trained(settings: Settings, hostile: tuple[int, ...], kind: str) -> tuple[dict[int, float], list[dict[str, Any]], float]:
    """Each user's metric at the end, what the server measured, and seconds."""
    began = time.perf_counter()
    with fixed_state(settings.threads):
        rounds = Rounds(settings)
        clients: list[Any] = [Hostile(c, kind) if c.user.number in hostile else c for c in rounds.federation.clients]
        rounds.federation = Federation(clients, rounds.federation.server)
        for round in range(settings.rounds):
            tick = rounds.round(round)
    return {int(user): value for user, value in tick.metrics}, rounds.rows["measures"], time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", default="mini")
    parser.add_argument("--public", default="voc")
    parser.add_argument("--seeds", default="100")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--hostile", default="5;2,5", help="groups of hostile users, such as '5;2,5'")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=NUMBER", help="other settings, such as local_epochs=1")
    parser.add_argument("--measures", action="store_true", help="also what was measured in the first round")
    asked = parser.parse_args()
    logging.disable(logging.WARNING)  # what the server warns of is in the last columns
    given: dict[str, Any] = {"profile": asked.profile, "public": asked.public, "evaluate_on": "validation"}
    given |= {name: int(value) for name, _, value in (item.partition("=") for item in asked.set)}
    given |= {"rounds": asked.rounds} if asked.rounds else {}
    groups = [tuple(map(int, group.split(","))) for group in asked.hostile.split(";")]
    arms = [("honest", (), robust) for robust in (0, 1)]
    arms += [(kind, group, robust) for group in groups for kind in asked.kinds.split(",") for robust in (0, 1)]
    print("| arm | hostile | robust | seed | honest users over local, % | their metrics | seen in rounds | falsely seen | s |")
    print("|" + " --- |" * 9)
    for seed in map(int, asked.seeds.split(",")):
        local, _, _ = trained(Settings(algorithm="local", seed=seed, **given), (), "")
        for kind, group, robust in arms:
            s = Settings(algorithm="fedmuscle", seed=seed, robust=robust, **given)
            metrics, measures, seconds = trained(s, group, kind)
            gain = fmean(100 * (metrics[user] / local[user] - 1) for user in metrics if user not in group)
            odd = suspicions(measures)
            seen = "; ".join(f"{user}: {sum(u == user for _, u in odd)} of {s.rounds}" for user in group)
            falsely = sum(user not in group for _, user in odd)
            values = " ".join(f"{user}: {value:.1f}" for user, value in metrics.items() if user not in group)
            cells = (kind, group, robust, seed, f"{gain:+.2f}", values, seen, falsely, f"{seconds:.0f}")
            print("| " + " | ".join(map(str, cells)) + " |", flush=True)
            if asked.measures:
                for name in MEASURES:
                    found = [f"{row['value']:.2f}" for row in measures if (row["round"], row["measure"]) == (1, name)]
                    print(f"    round 1, {name}: {' '.join(found)}", flush=True)


if __name__ == "__main__":
    main()
