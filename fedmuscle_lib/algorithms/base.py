"""What an algorithm is: how users update locally, and what they do together afterwards, once a communication round."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fedmuscle_lib.client import Client
from fedmuscle_lib.server import Server

if TYPE_CHECKING:
    from fedmuscle_lib.settings import Settings


@dataclass(frozen=True)
class Federation:
    """The clients, in the order of their numbers, and their server."""

    clients: list[Client]
    server: Server


class Algorithm(ABC):
    """One row of a table. Subclasses that set ``name`` register themselves.

    Attributes:
        name: for settings and files.
        label: for legends and tables.
        source: "the paper", "control" or "ours".
        communicates: whether anything happens between local updates; if not, a round's two phases are one.
        ignores: settings that change nothing for this algorithm, so that runs which differ in them alone are one run.
    """

    registry: ClassVar[dict[str, type[Algorithm]]] = {}
    name: ClassVar[str]
    label: ClassVar[str]
    source: ClassVar[str] = "the paper"
    communicates: ClassVar[bool] = True
    ignores: ClassVar[tuple[str, ...]] = ("gramian_tau",)

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        if "name" in cls.__dict__:
            Algorithm.registry[cls.name] = cls

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def begin(self, federation: Federation) -> None:  # noqa: B027  most algorithms prepare nothing
        """Before the first round, on freshly initialised models; done again, to the same effect, when a run resumes."""

    def local_update(self, federation: Federation) -> float:
        """Line 6 of Algorithm 1 for every user; returns the mean local loss."""
        losses = [client.fit(self.settings.local_epochs) for client in federation.clients]
        return sum(losses) / len(losses)

    @abstractmethod
    def communicate(self, federation: Federation, round: int) -> float | None:
        """What follows the local updates of round ``round`` (from 0); returns the mean loss of it, or None."""
