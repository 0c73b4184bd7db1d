"""A federation of seconds: clients with long-tailed classes of 16 px images that a small network
can tell apart.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fedmuscle_lib.data.samples import Samples
from fedmuscle_lib.fedloge import methods
from fedmuscle_lib.fedloge.build import Federation
from fedmuscle_lib.fedloge.methods import Problem, Recipe
from fedmuscle_lib.fedloge.preprocessing import Preprocessing

CLASSES = 4
COUNTS = ((20, 8, 3, 0), (5, 9, 2, 1))  # of each class, client by client
GROUPS = {"head": [0], "middle": [1], "tail": [2, 3]}
RECIPE = Recipe(epochs=1)
USUAL: dict[str, Any] = {"participation": 1.0, "recipe": RECIPE, "preprocessing": Preprocessing()}
LOCAL_TESTS = (
    torch.tensor([0, 1, 2, 5]),
    torch.tensor([0, 5, 10, 15]),
)  # the first client has no class 2 or 3
QUICK = {
    "fedloge": {"etf_steps": 20},
    "fedrep": {"head_epochs": 1},
}  # options of methods that take long by default
# Settings of a run in the embedded world.
RUN = {
    "rounds": 1,
    "clients": 4,
    "local_epochs": 1,
    "evaluate_every": 1,
    "options": {"fedloge.etf_steps": 50},
}


def samples(counts: tuple[int, ...], seed: int = 0) -> Samples:
    """So many images of each class, whose brightness tells the class, in a noise of their own."""
    labels = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    noise = torch.randint(
        80, (len(labels), 3, 16, 16), generator=torch.Generator().manual_seed(seed)
    )
    return Samples((noise + 40 * labels[:, None, None, None]).to(torch.uint8), labels)


def method(name: str, options: dict[str, Any] | None = None, seed: int = 0) -> methods.Method:
    return methods.get(name)(
        Problem("small_cnn", CLASSES, seed), QUICK.get(name, {}) | (options or {})
    )


def federation(
    name: str = "fedavg", options: dict[str, Any] | None = None, *, seed: int = 0, **given: Any
) -> Federation:
    """Two clients by default, all in every round."""
    counts = given.pop("counts", COUNTS)
    clients = [samples(own, seed=1 + k) for k, own in enumerate(counts)]
    local_tests = given.pop("local_tests", [LOCAL_TESTS[k % 2] for k in range(len(clients))])
    made = given.pop("method", None) or method(name, options, seed)
    return Federation(
        made, clients, samples((5,) * CLASSES, seed=99), local_tests, GROUPS, **(USUAL | given)
    )


def tensors(trained: Federation) -> dict[str, Tensor]:
    """Everything that training changes, by name."""
    own = {
        f"client {k}: {name}": value
        for k, client in trained.clients.items()
        for name, value in client.state().items()
    }
    return trained.server.tensors | own


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)
