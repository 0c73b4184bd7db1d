"""What an algorithm is: how users update locally, and what they do together afterwards, once a communication round."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel, ConfigDict
from torch import Tensor

from fedmuscle_lib.client import Client
from fedmuscle_lib.randomness import batches
from fedmuscle_lib.server import Batch, Server
from fedmuscle_lib.tasks import Classification

if TYPE_CHECKING:
    from fedmuscle_lib.settings import Settings


@dataclass(frozen=True)
class Federation:
    """The clients, in the order of their numbers, and their server."""

    clients: list[Client]
    server: Server

    def groups(self) -> list[list[Client]]:
        """Clients by label space: each group has one task and one list of classes; a user may be alone in it.

        Raises:
            ValueError: a user's task has no classes; the message names it.
        """
        found: dict[tuple, list[Client]] = {}
        for client in self.clients:
            if not isinstance(client.task, Classification):
                raise ValueError(f"user {client.user.number}: {client.task.name} has no label space that predictions could be exchanged in")
            found.setdefault((client.task.name, client.classes), []).append(client)
        return list(found.values())


class Options(BaseModel):
    """Hyper-parameters of one algorithm. Frozen and strict; every field says where its value comes from."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Algorithm(ABC):
    """One row of a table. Subclasses that set ``name`` register themselves.

    Attributes:
        name: for settings and files.
        label: for legends and tables.
        source: "the paper", "control" or "ours".
        communicates: whether anything happens between local updates; if not, a round's two phases are one.
        ignores: settings that change nothing for this algorithm, so that runs which differ in them alone are one run.
        Options: its own hyper-parameters, which settings name ``<algorithm>.<option>``.
    """

    registry: ClassVar[dict[str, type[Algorithm]]] = {}
    name: ClassVar[str]
    label: ClassVar[str]
    source: ClassVar[str] = "the paper"
    communicates: ClassVar[bool] = True
    ignores: ClassVar[tuple[str, ...]] = ("others", "tau", "tau_prime", "reply")
    Options: ClassVar[type[Options]] = Options

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        if "name" in cls.__dict__:
            Algorithm.registry[cls.name] = cls

    def __init__(self, settings: Settings) -> None:
        self.settings, self.options = settings, self.options_of(settings)

    @classmethod
    def options_of(cls, settings: Settings) -> Options:
        """This algorithm's hyper-parameters: what the settings give under its name, and defaults."""
        mine = {name: value for name, value in settings.options.items() if name.startswith(f"{cls.name}.")}
        return cls.Options(**{name.removeprefix(f"{cls.name}."): value for name, value in mine.items()})

    def begin(self, federation: Federation) -> None:  # noqa: B027  most algorithms prepare nothing
        """Before the first round, on freshly initialised models; done again, to the same effect, when a run resumes."""

    def local_update(self, federation: Federation, round: int) -> float:
        """Line 6 of Algorithm 1 for every user; returns the mean local loss."""
        losses = [client.fit(self.settings.local_epochs) for client in federation.clients]
        return sum(losses) / len(losses)

    @abstractmethod
    def communicate(self, federation: Federation, round: int) -> float | None:
        """What follows the local updates of round ``round`` (from 0); returns the mean loss of it, or None."""

    def public_batches(self, round: int) -> Iterator[tuple[Batch, Tensor]]:
        """T passes over the public set in an order of the round's: where a batch stands, and its rows. The same for every algorithm."""
        s = self.settings
        for epoch in range(s.cl_epochs):
            parts = batches(s.public_size, s.batch_size, "public order", s.seed, round, epoch)
            for position, rows in enumerate(parts):
                yield Batch(round, epoch, position, len(rows)), rows

    def state(self) -> dict[str, Any]:
        """What the algorithm itself carries from round to round, as tensors and plain containers."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:  # noqa: B027  most algorithms carry nothing
        """Go on with what :meth:`state` gave, after :meth:`begin`."""
