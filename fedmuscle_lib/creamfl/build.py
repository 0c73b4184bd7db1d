"""The federation of a run before its first round: data read, models initialised from the seed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from fedmuscle_lib.core.errors import prefixed
from fedmuscle_lib.core.randomness import seeded
from fedmuscle_lib.creamfl.client import Client
from fedmuscle_lib.creamfl.kinds import KINDS, Kind
from fedmuscle_lib.creamfl.losses import PairHead
from fedmuscle_lib.creamfl.networks import encoding_of, network
from fedmuscle_lib.creamfl.party import Recipe, cosine
from fedmuscle_lib.creamfl.server import Server
from fedmuscle_lib.creamfl.settings import Settings
from fedmuscle_lib.data.captioned import Captioned, parts
from fedmuscle_lib.data.encodings import Pixels, Tokens
from fedmuscle_lib.models import FrozenStates

SERVER = "server"
MODALITIES = ("images", "texts")


@dataclass(frozen=True)
class Federation:
    """Server, clients by number, and the test set as the server reads it; ``image_of`` is the row
    of each test caption's image.
    """

    server: Server
    clients: Mapping[int, Client]
    test: Mapping[str, Tensor]
    image_of: Tensor


def build(settings: Settings) -> Federation:
    """Read what the parties need and put them together. All clients of a checkpoint share its
    frozen weights and states.

    Raises:
        DataError, OSError: data or a checkpoint is missing or damaged; the message names the file.
        ValueError: there are too few samples, or a network is of another modality.
    """
    s, sets, states = settings, captioned(settings), FrozenStates()
    reader = cache(partial(encoding_of, s))

    def encodings(name: str) -> dict[str, Pixels | Tokens]:
        return {
            m: reader(m, s.networks[own])
            for m in MODALITIES
            if (own := f"{name}.{m}") in s.networks
        }

    @cache
    def public(encoding: Pixels | Tokens) -> Tensor:  # one tensor for all who read alike
        return sets["public"].firsts().encoded(encoding).to(s.device)

    def party(name: str, number: object, kind: Kind | None = None) -> dict[str, Any]:
        own = encodings(name)
        with seeded("weights", s.seed, number):
            models = {m: network(s, s.networks[f"{name}.{m}"], each) for m, each in own.items()}
            head = (kind.head() if kind else PairHead()).to(s.device)
        return {
            "models": models,
            "head": head,
            "public": {m: public(encoding) for m, encoding in own.items()},
            "states": states,
            "address": (s.seed, number) if kind else (s.seed,),
        }

    clients: dict[int, Client] = {}
    for name in s.kinds:
        kind = KINDS[name](s, encodings(name), sets)
        with prefixed(kind.folder(s), ValueError):
            shares = kind.shares(s.clients[name])
        for number, rows in enumerate(shares, len(clients)):
            about = party(name, number, kind)
            clients[number] = Client(number, kind, torch.as_tensor(rows, device=s.device), **about)
    recipe = Recipe("adam", s.server_lr, s.batch_size, s.batch_size, cosine(s.rounds))
    server = Server(clients, recipe=recipe, **party(SERVER, SERVER))
    own = encodings(SERVER)
    test = {m: sets["test"].encoded(encoding).to(s.device) for m, encoding in own.items()}
    return Federation(server, clients, test, sets["test"].image_of.to(s.device))


def captioned(settings: Settings) -> dict[str, Captioned]:
    """Return the run's captioned sets by name; those of one folder are disjoint. Without clients
    with pairs there are none for them.

    Raises:
        DataError: a folder is missing, damaged or too small; the message names it.
    """
    sizes: dict[str, dict[str, int]] = defaultdict(dict)  # by folder and name
    for name in ["test", "public"] + ["pairs"] * ("pairs" in settings.kinds):
        folder = getattr(settings, f"{name}_folder")
        sizes[folder][name] = getattr(settings, f"{name}_size")
    found: dict[str, Captioned] = {}
    for folder, own in sizes.items():
        found |= parts(settings.data_dir / folder, own)
    return found
