"""The federation of a run before its first round: data read, models initialised from the seed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from kornia.augmentation import RandomErasing
from torch import Tensor

from fedmuscle_lib.core.errors import prefixed
from fedmuscle_lib.core.randomness import derived_seed, generator
from fedmuscle_lib.creamfl import kinds
from fedmuscle_lib.creamfl.captions import captioned
from fedmuscle_lib.creamfl.client import Client
from fedmuscle_lib.creamfl.kinds import Kind
from fedmuscle_lib.creamfl.losses import PairHead
from fedmuscle_lib.creamfl.networks import encoding_of, network
from fedmuscle_lib.creamfl.party import Recipe, cosine
from fedmuscle_lib.creamfl.server import Server
from fedmuscle_lib.creamfl.settings import Settings
from fedmuscle_lib.data.captioned import Captioned
from fedmuscle_lib.data.encodings import Pixels, Tokens
from fedmuscle_lib.models import FrozenStates

SERVER = "server"
MODALITIES = ("images", "texts")
ERASED, DROPPED = (
    0.2,
    0.1,
)  # code: probabilities of an image to be erased in part, and of a word to be dropped


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
    return _Builder(settings).federation()


class _Builder:
    def __init__(self, settings: Settings) -> None:
        self.settings, self.states = settings, FrozenStates()
        self.sets = captioned(settings)
        self._encodings: dict[str, Pixels | Tokens] = {}
        self._public: dict[tuple[str, Pixels | Tokens], Tensor] = {}

    def federation(self) -> Federation:
        s, clients = self.settings, dict[int, Client]()
        for name in s.kinds_of_clients:
            kind = kinds.get(name)(
                s,
                {
                    modality: self.encoding(name, modality)
                    for modality in kinds.get(name).modalities
                },
                self.sets,
            )
            with prefixed(", ".join(kind.folders(s)), ValueError):
                shares = kind.shares(s.clients[name])
            for rows in shares:
                number = len(clients)
                clients[number] = Client(
                    number,
                    kind,
                    torch.as_tensor(rows, device=s.device),
                    **self.party(name, number, kind),
                )
        test = {modality: self.read(self.sets["test"], SERVER, modality) for modality in MODALITIES}
        server = Server(
            {k: tuple(client.models) for k, client in clients.items()}, **self.party(SERVER, SERVER)
        )
        return Federation(server, clients, test, self.sets["test"].image_of.to(s.device))

    def party(self, name: str, number: object, kind: Kind | None = None) -> dict[str, Any]:
        """Arguments of a client, or without a kind of the server; initial weights are drawn by its
        number, or name.
        """
        s, modalities = self.settings, kind.modalities if kind else MODALITIES
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derived_seed("weights", s.seed, number))
            models = {
                m: network(s, s.network_of(name, m), self.encoding(name, m)) for m in modalities
            }
            head = (kind.head() if kind else PairHead()).to(s.device)
        return {
            "models": models,
            "head": head,
            "public": {modality: self.public(name, number, modality) for modality in modalities},
            "states": self.states,
            "recipe": kind.recipe() if kind else self.recipe(),
            "address": (s.seed,) if kind is None else (s.seed, number),
        }

    def recipe(self) -> Recipe:
        """How the server trains."""
        s, mode = self.settings, bool(self.settings.server_training_mode)
        return Recipe(
            "adam",
            s.server_lr,
            s.batch_size,
            s.batch_size,
            cosine(s.rounds),
            embeds_in_training=mode,
        )

    def encoding(self, party: str, modality: str) -> Pixels | Tokens:
        name = self.settings.network_of(party, modality)
        if name not in self._encodings:
            self._encodings[name] = encoding_of(self.settings, modality, name)
        return self._encodings[name]

    def read(self, own: Captioned, party: str, modality: str) -> Tensor:
        return own.encoded(self.encoding(party, modality)).to(self.settings.device)

    def public(self, party: str, number: object, modality: str) -> Tensor:
        """The public pairs in a modality, one tensor for all parties that read them alike."""
        key = modality, self.encoding(party, modality)
        if key not in self._public:
            self._public[key] = self.read(self.sets["public"].firsts(), party, modality)
        plain = self._public[key]
        raw = party == SERVER and modality == "texts"  # code: BERT sees the captions as they are
        if not self.settings.augmented_public or raw:
            return plain
        return augmented(plain, "augmented", self.settings.seed, number, modality)


def augmented(inputs: Tensor, *address: object) -> Tensor:
    """Images (n, 3, h, w) of which a fifth are erased in part, or token ids (n, l) of which a tenth
    are dropped; drawn by the address.
    """
    if inputs.ndim == 4:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derived_seed(*address))
            return RandomErasing(p=ERASED)(inputs.float()).to(inputs.dtype)
    kept = torch.rand(inputs.shape, generator=generator(*address)).to(inputs.device) >= DROPPED
    kept[:, 0] = True  # the CLS token
    order = (
        (~kept).to(torch.int8).argsort(dim=1, stable=True)
    )  # what is dropped goes behind the end
    return inputs.masked_fill(~kept, 0).gather(1, order)
