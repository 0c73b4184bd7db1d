"""Base of all algorithms: how users update locally, and what they do together afterwards, once a
communication round.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

from torch import Tensor

from fedmuscle_lib.core.randomness import batches
from fedmuscle_lib.core.registry import Registered, own_options
from fedmuscle_lib.core.versions import Versioned
from fedmuscle_lib.fedmuscle.messages import Batch, LabelSpace
from fedmuscle_lib.fedmuscle.server import Server
from fedmuscle_lib.fedmuscle.setups import task_of
from fedmuscle_lib.tasks import TASKS, Classification, Head

if TYPE_CHECKING:  # a proxy of a client does as well, so algorithms load no model
    from fedmuscle_lib.fedmuscle.client import Client

Phase = Literal["after_local", "after_alignment"]
PHASES: tuple[Phase, ...] = (
    "after_local",
    "after_alignment",
)  # of a round, in the order of Algorithm 1

# settings that algorithms without drawn peers ignore: those of Algorithm 1 alone
NO_PEERS = ("order", "others", "tau", "tau_prime", "reply")
# settings that algorithms ignore whose users are never aligned by a reply
NO_ALIGNMENT = (*NO_PEERS, "optimisers")


@dataclass(frozen=True)
class Federation:
    """The clients, in the order of their numbers, and their server."""

    clients: list[Client]
    server: Server

    def groups(self) -> list[Group]:
        """Group the clients by label space, also a single one; raises ValueError, which names the
        user, for a task without classes.
        """
        found: dict[LabelSpace, list[Client]] = {}
        for client in self.clients:
            found.setdefault(client.label_space, []).append(client)
        return [Group(clients, self.server, space) for space, clients in found.items()]


@dataclass(frozen=True)
class Group(Federation):
    """The clients of one label space, and the server."""

    space: LabelSpace

    @property
    def task(self) -> Classification:
        """The users' task, which reads their outputs."""
        task = task_of(self.clients[0].user)  # they have equal ones
        assert isinstance(task, Classification)
        return task


class ClientSide:
    """An algorithm's own code that runs where a client is: ``client.do(part)``, or every local step
    by ``client.fit(epochs, part)``.

    A subclass is a frozen dataclass: it travels to the client as a value. Its ``__call__`` takes
        the client, as a local step also the rows
    of D^n and the number of steps before it, and may use model and data. What it returns leaves the
    client, so it is made of public data alone; ``directed`` says what it makes of local data. The
    rest of an algorithm runs beside the server and touches no client but by its methods.
    """


class IgnoredSetting(RuntimeError):
    """An algorithm reads a setting that it declares as ignored.

    Runs that differ in this setting would share one address.
    """


class Reading:
    """A view of settings for one algorithm. Reading a setting that the algorithm ignores raises
    :class:`IgnoredSetting`.

    Methods and properties of the settings are bound to the view, so they raise it too.

    Args:
        settings: an object whose attributes are the settings.
        algorithm: the class that declares ``ignores``.
    """

    def __init__(self, settings: object, algorithm: type[Algorithm]) -> None:
        self._settings, self._algorithm = settings, algorithm

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # serialising, for instance, would read all settings at once
            raise AttributeError(f"{name!r} is no setting; an algorithm reads settings by name")
        if name in self._algorithm.ignores:
            owner = self._algorithm.__name__
            raise IgnoredSetting(
                f"{self._algorithm.name} ignores {name!r} but reads it: take it out of"
                f" {owner}.ignores"
            )
        kind = type(self._settings)
        described = inspect.getattr_static(kind, name, None)
        return (
            described.__get__(self, kind)
            if hasattr(described, "__get__")
            else getattr(self._settings, name)
        )


class Algorithm(Registered, Versioned, family="algorithm"):
    """One row of a table. Subclasses that set ``name`` register themselves.

    Attributes:
        name: for settings and files.
        label: for legends and tables.
        source: "the paper", "control" or "ours".
        heads: the kinds of prediction head whose users it serves; the others take no part in its
            runs.
        communicates: whether anything happens between local updates; if not, a round's two phases
            are one.
        ignores: settings that change nothing for this algorithm. Runs that differ in these alone
            are one run, and reading one is an error (see :class:`Reading`). Subclasses inherit
            them.
        views_only: whether users see public samples as augmented views alone, so that nothing of
            them is computed once and kept.
        version: of what this class computes (see ``fedmuscle_lib.core.versions``).
        Options: defaults are the authors' values where they have one, but for Gramian's tau; a
            profile's table ``[options]`` has what was tuned on it.
        steps: by user, the local step of this round, where it is not that of local training.
    """

    label: ClassVar[str]
    source: ClassVar[str] = "the paper"
    heads: ClassVar[tuple[Head, ...]] = get_args(Head)
    communicates: ClassVar[bool] = True
    ignores: ClassVar[tuple[str, ...]] = ()
    views_only: ClassVar[bool] = False

    def __init__(self, settings: Any) -> None:
        self.settings = Reading(settings, type(self))
        self.options: Any = self.options_of(settings)  # of the class's own kind
        self.steps: dict[int, ClientSide] = {}

    @classmethod
    def options_of(cls, settings: Any) -> Registered.Options:
        """This algorithm's hyper-parameters: what the settings give under its name, and
        defaults.
        """
        return cls.Options(**own_options(settings.options, cls.name))

    @classmethod
    def serves(cls, task: str) -> bool:
        """Return whether users with the task called ``task`` can take part."""
        return TASKS[task].head in cls.heads

    def begin(self, federation: Federation) -> None:
        """Before the first round, on freshly initialised models; done again, to the same effect,
        when a run resumes.
        """

    def phases(self) -> tuple[Phase, ...]:
        """The phases of every round, in the order in which they are done."""
        return PHASES

    def local_update(self, federation: Federation, round: int) -> float:
        """Line 6 of Algorithm 1 for every user; returns the mean local loss."""
        losses = [self.local_phase(client, round) for client in federation.clients]
        return sum(losses) / len(losses)

    def local_phase(self, client: Client, round: int) -> float:
        """LocalUpdate of one user, E epochs; returns its loss.

        Also what ``refit`` does to a copy before an evaluation.
        """
        return client.fit(self.settings.epochs_in(round, client.user), self.local_step(client))

    def local_step(self, client: Client) -> Any:
        """A user's local step in this round, a :class:`ClientSide`; None if it is that of local
        training.
        """
        return self.steps.get(client.user.number)

    def communicate(self, federation: Federation, round: int) -> float | None:
        """Do the users' common part of round ``round`` (from 0); return its mean loss, or None.

        By default they have none.
        """
        return None

    def public_batches(self, round: int) -> Iterator[tuple[Batch, Tensor]]:
        """T passes over the public set in an order of the round's: where a batch stands, and its
        rows. The same for every algorithm.
        """
        s = self.settings
        for epoch in range(s.cl_epochs):
            parts = batches(s.public_size, s.public_batch, "public order", s.seed, round, epoch)
            for position, rows in enumerate(parts):
                yield Batch(round, epoch, position, len(rows)), rows

    def state(self) -> dict[str, Any]:
        """Return what the algorithm itself carries from round to round, as tensors and plain
        containers.
        """
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on with what :meth:`state` gave, after :meth:`begin`."""
