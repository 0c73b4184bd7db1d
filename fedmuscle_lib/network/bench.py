"""What a round's exchange costs on loopback over TLS: time apart from computing, and bytes beside
the ledger's count.
"""

from __future__ import annotations

import threading
import time
import timeit
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Literal

import pandas as pd
import torch
from torch.nn.functional import normalize

from fedmuscle_lib.core.randomness import generator
from fedmuscle_lib.core.torch_state import fixed_state
from fedmuscle_lib.fedmuscle import algorithms
from fedmuscle_lib.muscle import make_reply
from fedmuscle_lib.network import keys
from fedmuscle_lib.network.aggregator import Aggregator
from fedmuscle_lib.network.history import History
from fedmuscle_lib.network.messages import (
    REPRESENTATIONS,
    Finished,
    Next,
    Ready,
    Roster,
    Sent,
    pack,
    unpacked_reply,
)
from fedmuscle_lib.network.relay import Relay
from fedmuscle_lib.network.service import Connection, listening
from fedmuscle_lib.network.terms import Address, Bounds, Limits, Terms

_PARTIES, _BATCHES = (2, 6, 20), (16, 157)  # how many parties, and batches of a round
_ROUNDS = 3  # that are timed, after one that is not
_PUBLIC: tuple[Literal["images"], str] = ("images", "of no set")


def bench_network(batch: int, dim: int) -> pd.DataFrame:
    """Print what a round's exchange costs for parties without models, which send the same
    representations in every batch.

    All parties are threads of this process, beside the server's, so they share what one process
    has; on machines of their own they would wait less. Bytes are those that a relay in between
    counts in one more round: TCP's payload, with TLS, HTTP/2 and heads.

    Args:
        batch, dim: B and d.

    Returns:
        One row a cell: parties, batches, exchange_s (of a round, the median), computing_s (of it,
            the replies alone), network_s (the rest),
        cpu_s (of all sides together), ledger_mb, wire_mb, overhead_percent.
    """
    rows = []
    for n in _PARTIES:
        for count in _BATCHES:
            with TemporaryDirectory() as folder, fixed_state(1):
                keys.make(Path(folder), range(1, n + 1), ["127.0.0.1"])
                size: dict[str, Any] = {
                    "public_size": count * batch,
                    "public_batch": batch,
                    "proj_dim": dim,
                    "others": min(3, n - 1),
                }
                terms = Terms(name="bench", public=dict([_PUBLIC]), rounds=_ROUNDS + 1, **size)
                history, cpu, _ = _federated(Path(folder), terms, n, relayed=False)
                exchange = median(history.table("rounds").exchange_seconds[1:])
                short = terms.model_copy(
                    update={"rounds": 1, "public_size": min(count, 16) * batch}
                )
                counted, _, wire = _federated(Path(folder), short, n, relayed=True)
                ledger = int(counted.table("users")[["uplink_bytes", "downlink_bytes"]].sum().sum())
                z = [_rows(user, batch, dim) for user in range(size["others"] + 1)]
                reply = median(
                    timeit.repeat(partial(make_reply, "gradient", z[0], z[1:]), number=1, repeat=20)
                )
                computing = n * count * reply
            about = {
                "parties": n,
                "batches": count,
                "exchange_s": exchange,
                "computing_s": computing,
                "network_s": exchange - computing,
            }
            mega = count / min(count, 16) / 1e6
            sizes = {
                "ledger_mb": ledger * mega,
                "wire_mb": wire * mega,
                "overhead_percent": 100 * (wire / ledger - 1),
            }
            rows.append(about | {"cpu_s": cpu / (_ROUNDS + 1)} | sizes)
            print(", ".join(f"{name} {value:.4g}" for name, value in rows[-1].items()), flush=True)
    return pd.DataFrame(rows)


def _federated(
    folder: Path, terms: Terms, parties: int, relayed: bool
) -> tuple[History, float, int]:
    """All rounds: what happened, CPU seconds of this process, and bytes through the relay."""
    users = range(1, parties + 1)
    history = History(None, terms)
    public = {user: keys.public_key(folder / f"user_{user}.pub") for user in users}
    aggregator = Aggregator(terms, public, history, Bounds(), lambda _: None)
    with ExitStack() as stack:
        address = stack.enter_context(
            listening(
                aggregator,
                Address(host="127.0.0.1", port=0),
                folder / "server.pem",
                folder / "server.key",
            )
        )
        relay = stack.enter_context(Relay(address).running()) if relayed else None
        pool = stack.enter_context(ThreadPoolExecutor(parties))
        met = threading.Barrier(parties)
        began = time.process_time()
        futures = [
            pool.submit(_take_part, folder, terms, user, relay.address if relay else address, met)
            for user in users
        ]
        aggregator.run()
        for future in futures:
            future.result()
        return history, time.process_time() - began, relay.up + relay.down if relay else 0


def _take_part(
    folder: Path, terms: Terms, user: int, address: Address, met: threading.Barrier
) -> None:
    """A party that sends the same representations in every batch and learns nothing."""
    algorithm = algorithms.get(terms.algorithm)(terms)
    key, z = (
        keys.private_key(folder / f"user_{user}.key"),
        _rows(user, terms.public_batch, terms.proj_dim),
    )
    with Connection(address, folder / "server.pem", Limits(), lambda _: None) as connection:
        connection.join(user, key, lambda _: _PUBLIC)
        for round in range(terms.rounds):
            met.wait()
            connection.ask("ready", Ready(round=round), Roster)
            for place, _ in algorithm.public_batches(round):
                answer = connection.call(
                    "exchange", pack(Sent(**vars(place)), {REPRESENTATIONS: z})
                )
                unpacked_reply(terms.reply, answer, z.device)
            connection.ask("finished", Finished(round=round), Next)


def _rows(user: int, batch: int, dim: int) -> torch.Tensor:
    return normalize(torch.randn(batch, dim, generator=generator("bench network", user)), dim=1)
