"""Terms of a federation, and the TOML files that the server and each party own."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from fedmuscle_lib.core.errors import DataError, prefixed
from fedmuscle_lib.core.files import read_bytes, user_path
from fedmuscle_lib.core.registry import check_known
from fedmuscle_lib.data.encodings import Modality
from fedmuscle_lib.data.public import PUBLIC_SETS, public_digest
from fedmuscle_lib.fedmuscle.settings import Settings, check_pairs
from fedmuscle_lib.fedmuscle.setups import User
from fedmuscle_lib.models import architecture_of
from fedmuscle_lib.muscle.temperature import check_temperatures
from fedmuscle_lib.runs.settings import parse
from fedmuscle_lib.tasks import TASKS


def _host_and_port(address: str) -> str:
    if not re.fullmatch(r".+:\d{1,5}", address):
        raise ValueError("an address is host:port, such as aggregator.example:8899")
    return address


Address = Annotated[str, AfterValidator(_host_and_port)]
Place = Annotated[Path, BeforeValidator(lambda at: user_path(at) if isinstance(at, str) else at)]
Wait = Annotated[float, Field(gt=0, le=30 * 86400)]


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Terms(_Table):
    """What the server asks of every party, and all that it asks. FedMuscle reads them as settings.

    Fields are those of ``fedmuscle_lib.fedmuscle.settings.Settings``, with the same defaults;
    ``tau`` and ``tau_prime`` take a number, or numbers by pairs of users, such as {"default": 0.2,
    "1-3": 0.5}.

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
    tau: float | dict[str, float] = 0.2
    tau_prime: float | dict[str, float] = 0.15
    proj_dim: int = Field(256, ge=2)

    def temperature(self, name: str, first: int, second: int) -> float:
        """``tau`` or ``tau_prime`` between two users, by number."""
        value = getattr(self, name)
        if isinstance(value, float):
            return value
        return value.get(f"{first}-{second}") or value.get(f"{second}-{first}") or value["default"]


class _File(_Table):
    certificate: Place
    root: Place
    wait: Wait = 600


class ServerFile(Terms, _File):
    """The server's TOML file: the terms, and what is the server's alone.

    Attributes:
        public: the folder of the public set, or the digests of one that the server does not have.
        users: who may join, by number.
        address: where it listens; port 0 is any free one, which stays when it is started again.
        folder: of its state, its history and its address.
        certificate: of the server, with its private key, in PEM.
        root: the certificate by which the parties' are signed.
        wait: seconds for what it asks a party, local training included.
    """

    public: Place | dict[Modality, str]  # type: ignore[assignment]  # the terms have the digests
    users: tuple[Annotated[int, Field(ge=1)], ...] = Field(min_length=2)
    address: Address = "127.0.0.1:0"
    folder: Place

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        users = self.users
        if len(set(users)) < len(users):
            raise ValueError(f"users: {list(users)} names one twice")
        if self.others >= len(users):
            raise ValueError(
                f"others: M = {self.others}, but a user has only {len(users) - 1} other users"
            )
        if self.public_batch > self.public_size:
            raise ValueError(
                f"public_batch: B = {self.public_batch} is larger than the public set of"
                f" {self.public_size}"
            )
        pairs = {f"{i}-{j}" for i in users for j in users if i != j}
        for name in ("tau", "tau_prime"):
            if isinstance(value := getattr(self, name), dict):
                others = f"no pair of users who may join, such as {min(pairs)!r}"
                check_pairs(name, value, lambda i, j: f"{i}-{j}" in pairs, others)
        tau, tau_prime = (
            [[self.temperature(name, i, j) for j in users] for i in users]
            for name in ("tau", "tau_prime")
        )
        check_temperatures(tau, tau_prime, [f"user {user}" for user in users], self.others > 1)
        return self

    def terms(self) -> Terms:
        """The terms, with the digests of the public set; raises DataError where it can't be
        read.
        """
        own, folder = dict(self), self.public
        if isinstance(folder, Path):
            own["public"] = {"images": public_digest(folder, self.public_size, "images")}
            with suppress(DataError):  # there are no captions
                own["public"]["texts"] = public_digest(folder, self.public_size, "texts")
        return Terms(**{name: own[name] for name in Terms.model_fields})


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
        check_known("task: no task", self.party.task, TASKS)
        check_known("public: unknown public set", self.public, PUBLIC_SETS)
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
        most_rounds: it refuses a federation of more.
        wait: seconds for a server that is silent or gone.
        settings: other settings of its training, by the names of
            ``fedmuscle_lib.fedmuscle.settings.Settings``, such as lr, rank, seed, local_epochs and
            device; a profile's numbers fill in the others.
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
    most_rounds: int = Field(1000, ge=1)
    settings: dict[str, Any] = {}

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
        if twice := self.settings.keys() & given:
            raise ValueError(
                f"settings: {min(twice)} is for the server's terms or for the file's own fields"
                " to say"
            )
        return parse(
            PartySettings, {"profile": "paper", "train_samples": {}} | self.settings | given
        )

    def check_public(self, terms: Terms) -> None:
        """Check that the party has the federation's public set; raises DataError if not."""
        reads, folder = architecture_of(self.model).reads, self.data / PUBLIC_SETS[self.public]
        theirs = terms.public.get(reads, "none")
        if (ours := public_digest(folder, terms.public_size, reads)) != theirs:
            raise DataError(
                f"{folder}: another public set than the federation's: its {reads} have the SHA-256"
                f" {ours[:16]}..., the terms {theirs[:16]}..."
            )


F = TypeVar("F", bound=_File)


def read(kind: type[F], path: Path | None, given: Mapping[str, Any] = {}) -> F:
    """Read a TOML file, with values that replace its own; those of a table join it. Relative paths
    start at the file's folder.

    Raises:
        ValueError: naming the file and the field.
        DataError: there is no such file.
    """
    content = b"" if path is None else read_bytes(path)
    with prefixed(str(path or "the command line"), ValueError, ValueError):
        table = tomllib.loads(content.decode())
        for name, value in given.items():
            joins = isinstance(value, dict) and isinstance(table.get(name), dict)
            table[name] = table[name] | value if joins else value
        file = parse(kind, table)
    here = path.absolute().parent if path else Path()
    places = {name: here / place for name, place in file if isinstance(place, Path)}
    return file.model_copy(update=places)
