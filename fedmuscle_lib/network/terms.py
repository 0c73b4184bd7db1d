"""Terms of a federation, and the TOML files that the server and each party own."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from fedmuscle_lib.core.errors import DataError, prefixed
from fedmuscle_lib.core.files import read_bytes, user_path
from fedmuscle_lib.core.registry import check_known
from fedmuscle_lib.data.encodings import Modality
from fedmuscle_lib.data.public import PUBLIC_SETS, public_digest
from fedmuscle_lib.fedmuscle.settings import Settings
from fedmuscle_lib.fedmuscle.setups import User
from fedmuscle_lib.models import architecture_of
from fedmuscle_lib.muscle.temperature import temperatures
from fedmuscle_lib.runs.settings import parse
from fedmuscle_lib.tasks import TASKS

Address = Annotated[str, Field(pattern=r"^.+:\d+$")]  # host:port
Place = Annotated[Path, BeforeValidator(lambda at: user_path(at) if isinstance(at, str) else at)]


class Table(BaseModel):
    """Values that are checked, of known names alone."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Terms(Table):
    """What the server asks of every party, and all that it asks. FedMuscle reads them as settings.

    Fields are those of ``fedmuscle_lib.fedmuscle.settings.Settings``, with the same defaults.

    Attributes:
        format: of messages and checkpoints; a party of another one is refused.
        public: SHA-256 of the public set by what is read of it, "images" or "texts"
            (``fedmuscle_lib.data.public.public_digest``).
    """

    options: ClassVar[dict[str, Any]] = {}
    order: ClassVar[str] = "local_first"
    reply: ClassVar[str] = "gradient"

    format: Literal[2] = 2
    public: dict[Modality, str]
    seed: int = Field(0, ge=0)
    rounds: int = Field(150, ge=1)
    cl_epochs: int = Field(1, ge=1)
    public_size: int = Field(5000, ge=2)
    public_batch: int = Field(32, ge=2)
    others: int = Field(3, ge=1)
    tau: float = 0.2
    tau_prime: float = 0.15
    proj_dim: int = Field(256, ge=2)


class _File(Table):
    certificate: Place
    root: Place
    wait: float = Field(600, gt=0)


class ServerFile(Terms, _File):
    """The server's TOML file: the terms, and what is the server's alone.

    Attributes:
        public: the folder of the public set.
        users: who may join, by number.
        address: where it listens; port 0 is any free one, which stays when it is started again.
        folder: of its state, its history and its address.
        certificate: of the server, with its private key, in PEM.
        root: the certificate by which the parties' are signed.
        wait: seconds for what it asks a party, local training included.
    """

    public: Place  # type: ignore[assignment]  # the terms have its digests
    users: frozenset[Annotated[int, Field(ge=1)]] = Field(min_length=2)
    address: Address = "127.0.0.1:0"
    folder: Place

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        if self.others > (most := len(self.users) - 1):
            raise ValueError(f"others: M = {self.others}, but a user has only {most} other users")
        temperatures(self.tau, self.tau_prime, self.others)
        return self

    def terms(self) -> Terms:
        """The terms, with the digests of the public set; raises DataError where it can't be
        read.
        """
        public = {"images": public_digest(self.public, self.public_size, "images")}
        with suppress(DataError):  # there are no captions
            public["texts"] = public_digest(self.public, self.public_size, "texts")
        ours = self.model_dump(include=Terms.model_fields.keys() - {"public"})
        return Terms(**ours, public=public)


class PartySettings(Settings):
    """Settings of one party's own training.

    The user is the party's to say, and not one of the paper's setups.
    """

    party: User

    @property
    def members(self) -> tuple[User, ...]:
        return (self.party,)

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        self._check_tasks()
        return self


class PartyFile(_File):
    """A party's TOML file, which it alone owns.

    Attributes:
        server: its address.
        certificate: of the party, with its private key, in PEM; its common name is the user's
            number.
        root: the certificate by which the server's is signed.
        state: folder of its checkpoints and its history.
        data: folder in the documented layout, with the public set.
        task: a name in ``fedmuscle_lib.tasks``.
        folder, client: where its files are, ``<folder>/<split>/client_<client>``; by default in the
            task's own folder.
        classes: how many, in a folder of its own, of a task whose files do not list them.
        train_samples: how many samples of its file it trains on.
        model: folder of its backbone.
        public: name of the public set in ``data``.
        compare: whether a copy trains beside it on local data alone, to compare with; it doubles
            local training.
        report: whether it tells the server its metric and that of its own local training.
        wait: seconds for a server that is silent or gone.
        settings: other settings of its training, by the names of
            ``fedmuscle_lib.fedmuscle.settings.Settings``, such as lr, rank, seed, local_epochs and
            device; a profile's numbers fill in the others, and the terms go before them.
    """

    server: Address
    state: Place
    data: Place
    task: str
    train_samples: int = Field(ge=1)
    folder: str | None = Field(None, min_length=1)
    client: int = Field(0, ge=0)
    classes: int | None = Field(None, ge=2)
    model: Place
    public: str = "voc"
    compare: bool = True
    report: bool = False
    settings: dict[str, Any] = {}

    @model_validator(mode="after")
    def _has_names(self) -> Self:
        check_known("task: no task", self.task, TASKS)
        check_known("public: unknown public set", self.public, PUBLIC_SETS)
        return self

    def training(self, user: int, terms: Terms) -> PartySettings:
        """Settings of the party's training under these terms, of which it takes sizes, rounds and
        dimension alone.

        Raises:
            ValueError: naming the setting that can't be.
        """
        party = User(
            user,
            self.model.name,
            self.task,
            self.client,
            self.train_samples,
            self.folder,
            self.classes,
        )
        given = {
            "data_dir": self.data,
            "models_path": self.model.parent,
            "backbones": {party.model: party.model},
            "public": self.public,
            "party": party,
        } | terms.model_dump(include={"rounds", "cl_epochs", "public_size", "proj_dim"})
        return parse(
            PartySettings, {"profile": "paper", "train_samples": {}} | self.settings | given
        )

    def check_public(self, terms: Terms) -> None:
        """Check that the party has the federation's public set; raises DataError if not."""
        reads, folder = architecture_of(self.model).reads, self.data / PUBLIC_SETS[self.public]
        if public_digest(folder, terms.public_size, reads) != terms.public.get(reads):
            raise DataError(f"{folder}: another public set than the federation's: other {reads}")


F = TypeVar("F", bound=_File)


def read(kind: type[F], path: Path, given: Mapping[str, Any] = {}) -> F:
    """Read a TOML file, with values that replace its own; those of a table join it. Relative paths
    start at the file's folder.

    Raises:
        ValueError: naming the file and the field.
        DataError: there is no such file.
    """
    content = read_bytes(path)
    with prefixed(str(path), ValueError, ValueError):
        table = tomllib.loads(content.decode())
        for name, value in given.items():
            joins = isinstance(value, dict) and isinstance(table.get(name), dict)
            table[name] = table[name] | value if joins else value
        file = parse(kind, table)
    here = path.absolute().parent
    places = {name: here / place for name, place in file if isinstance(place, Path)}
    return file.model_copy(update=places)
