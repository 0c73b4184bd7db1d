"""Base of all algorithms: what clients align with on public pairs, and what the server makes of
their embeddings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from torch import Tensor

from fedmuscle_lib.core.registry import Registered
from fedmuscle_lib.core.versions import Versioned
from fedmuscle_lib.creamfl.client import Client
from fedmuscle_lib.creamfl.party import Embeddings
from fedmuscle_lib.creamfl.server import Server


class Algorithm(Registered, Versioned, family="algorithm"):
    """One row of a table. Subclasses that set ``name`` register themselves.

    Args:
        settings: of the run.

    Attributes:
        name: for settings and files.
        label: for legends and tables.
        source: "the paper", "control" or "ours".
        version: of what this class computes (see ``fedmuscle_lib.core.versions``).
        losses: of each client in this round by number: private and public.
    """

    label: ClassVar[str]
    source: ClassVar[str] = "the paper"

    def __init__(self, settings: Any) -> None:
        self.settings = settings
        self.options: Any = self.Options(**settings.own_options)  # of the class's own kind
        self.losses: dict[int, tuple[float, float]] = {}

    def gather(
        self, server: Server, clients: Mapping[int, Client], round: int
    ) -> Sequence[Embeddings]:
        """Do the clients' part of round ``round`` (from 0); return the embeddings (n, d) by
        modality that the server works with.

        Raises:
            Diverged: naming the client.
        """
        self.losses, uploads = {}, []
        for number in server.participants(round, self.settings.participants):
            self.visit(clients[number], server.send(number, round), round)
            uploads.append(server.receive(number, round, clients[number].represent()))
        return uploads

    def visit(self, client: Client, received: Embeddings, round: int) -> None:
        """Train one participant."""
        before = client.represent()
        self.losses[client.number] = client.fit(
            self.settings.local_epochs,
            lambda z, rows, _: self.regularise(z, received, before, rows),
            round,
        )

    def regularise(
        self, z: Embeddings, received: Embeddings, before: Embeddings, rows: Tensor
    ) -> Tensor:
        """A client's loss on a batch of public pairs, a scalar.

        Args:
            z: its embeddings of the batch by modality, (b, d), the gradient's owners.
            received: the server's of all public pairs and both modalities, (n, d).
            before: the client's own as they were before this round, (n, d).
            rows: (b,), which of the n the batch is.
        """
        raise NotImplementedError

    def absorb(self, server: Server, uploads: Sequence[Embeddings], round: int) -> float:
        """Train the server by what was gathered, if anything was; return the mean loss."""
        raise NotImplementedError


def other(modality: str) -> str:
    """The modality that is not this one."""
    return "texts" if modality == "images" else "images"
