"""Terms of a federation, and the TOML files that the server and each party own."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from fedmuscle_lib.core.errors import DataError, RefusedMessage, line_of
from fedmuscle_lib.core.files import read_bytes, user_path
from fedmuscle_lib.core.registry import check_known, meant
from fedmuscle_lib.data.encodings import Modality
from fedmuscle_lib.data.public import PUBLIC_SETS, public_digest
from fedmuscle_lib.fedmuscle import algorithms
from fedmuscle_lib.fedmuscle.settings import Settings, check_pairs
from fedmuscle_lib.fedmuscle.setups import User
from fedmuscle_lib.models import architecture_of
from fedmuscle_lib.muscle.temperature import check_temperatures
from fedmuscle_lib.runs import settings as any_run
from fedmuscle_lib.tasks import TASKS

FORMAT = 1  # of messages and checkpoints; parties of another one are refused
_HERE = "folder of the file"  # in pydantic's context: where relative paths start
Place = Annotated[
    Path,
    AfterValidator(
        lambda path, info: (
            (info.context or {}).get(_HERE, Path()) / user_path(path, info.field_name)
        )
    ),
]


class _Table(BaseModel):
    """A table of a TOML file."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Terms(BaseModel):
    """What the server asks of every party, and all that it asks. FedMuscle reads them as settings.

    Fields are those of ``fedmuscle_lib.fedmuscle.settings.Settings``, with the same defaults;
    ``tau`` and ``tau_prime`` take a number, or numbers by pairs of users, such as {"default": 0.2,
    "1-3": 0.5}.

    Attributes:
        format: of messages.
        name: of the federation; parties sign it.
        public: SHA-256 of the public set by what is read of it, "images" or "texts"
            (``fedmuscle_lib.data.public.public_digest``).
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    format: int = FORMAT
    name: str = Field(min_length=1, max_length=100)
    public: dict[str, str] = Field(min_length=1)
    algorithm: Literal["fedmuscle", "pairwise", "gramian"] = "fedmuscle"
    options: dict[str, float] = {}
    seed: int = Field(0, ge=0)
    rounds: int = Field(150, ge=1, le=100_000)
    cl_epochs: int = Field(1, ge=1, le=1000)
    order: Literal["local_first", "alignment_first"] = "local_first"
    public_size: int = Field(5000, ge=2)
    public_batch: int = Field(32, ge=2)
    others: int = Field(3, ge=1)
    tau: float | dict[str, float] = 0.2
    tau_prime: float | dict[str, float] = 0.15
    proj_dim: int = Field(256, ge=2, le=1 << 16)
    reply: Literal["gradient", "factored", "dense"] = "gradient"

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        if self.format != FORMAT:
            raise ValueError(
                f"format: {self.format}, where this version speaks {FORMAT}; all sides need the"
                " same version"
            )
        if self.public_batch > self.public_size:
            raise ValueError(
                f"public_batch: B = {self.public_batch} is larger than the public set of"
                f" {self.public_size}"
            )
        any_run.check_options(
            self.options, {self.algorithm: algorithms.get(self.algorithm).Options}
        )
        return self

    def temperature(self, name: str, first: int, second: int) -> float:
        """``tau`` or ``tau_prime`` between two users, by number."""
        value = getattr(self, name)
        pairs = (f"{first}-{second}", f"{second}-{first}", "default")
        return (
            value
            if isinstance(value, float)
            else next(value[pair] for pair in pairs if pair in value)
        )

    def check_users(self, users: list[int]) -> None:
        """Check what depends on who may join; raises ValueError if M is too large, or temperatures
        contradict each other.
        """
        if self.others > len(users) - 1:
            raise ValueError(
                f"others: M = {self.others}, but a user has only {len(users) - 1} other users"
            )
        pairs = {f"{i}-{j}" for i in users for j in users if i != j}
        for name in ("tau", "tau_prime"):
            if isinstance(value := getattr(self, name), dict):
                others = f"no pair of users who may join, such as {min(pairs)!r}"
                check_pairs(name, value, lambda first, second: f"{first}-{second}" in pairs, others)
        tau, tau_prime = (
            [[self.temperature(name, i, j) for j in users] for i in users]
            for name in ("tau", "tau_prime")
        )
        check_temperatures(
            tau,
            tau_prime,
            [f"user {user}" for user in users],
            self.algorithm == "fedmuscle" and self.others > 1,
        )

    @property
    def uplink_bytes(self) -> int:
        """Bytes of all representations that a party sends, in float32."""
        return self.rounds * self.cl_epochs * self.public_size * self.proj_dim * 4

    @property
    def largest_batch(self) -> int:
        """Bytes of a batch's representations; a remainder of one sample joins the batch before."""
        return (self.public_batch + 1) * self.proj_dim * 8


class Address(_Table):
    """Where the server listens, or is found: "host:port"."""

    host: str
    port: int = Field(ge=0, le=65535)

    @model_validator(mode="before")
    @classmethod
    def _of_text(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        host, colon, port = value.rpartition(":")
        if not (colon and host and port.isdecimal()):
            raise ValueError("an address is host:port, such as aggregator.example:8899")
        return {"host": host, "port": int(port)}

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def loopback(self) -> bool:
        """Whether nothing leaves the machine."""
        try:
            return self.host == "localhost" or ip_address(self.host.strip("[]")).is_loopback
        except ValueError:
            return False


def _check_secure(address: Address, insecure: bool, secured: bool) -> None:
    if insecure and not address.loopback:
        raise ValueError(f"insecure: only on loopback, such as 127.0.0.1, not at {address}")
    if insecure == secured:
        lacks = (
            "an encrypted connection needs a certificate: `python -m fedmuscle_lib keys FOLDER"
            " --host NAME` makes one to try it with"
        )
        raise ValueError(
            "insecure: certificates are named too; leave one of them out" if secured else lacks
        )


class Bounds(_Table):
    """How long the server waits, in seconds, and for how many.

    Attributes:
        start: for everybody, when it starts.
        round: for a party that took part in the last round or came back since, while others are
            ready.
        batch: for a party's representations of a batch, while others' are there.
        fewest: parties without whom no round begins.
    """

    start: float = Field(600, gt=0)
    round: float = Field(600, gt=0)
    batch: float = Field(60, gt=0)
    fewest: int = Field(2, ge=2)


class ServerFile(_Table):
    """The server's TOML file.

    Attributes:
        address: where it listens; port 0 is any free one.
        folder: of its state and its history.
        users: who may join: the file of each user's public key, by number.
        terms: :class:`Terms` without ``public``.
        public: the folder of the public set, or the digests of one that the server does not have.
        certificate, key: of TLS, in PEM.
        insecure: whether there is no TLS; on loopback alone.
        bounds: how long it waits.
        threads: of torch.
    """

    address: Address
    folder: Place
    users: dict[int, Place] = Field(min_length=2)
    terms: dict[str, Any]
    public: Place | dict[Modality, str]
    certificate: Place | None = None
    key: Place | None = None
    insecure: bool = False
    bounds: Bounds = Bounds()
    threads: int = Field(1, ge=1, le=1024)

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        if self.bounds.fewest > len(self.users):
            raise ValueError(
                f"bounds.fewest: {self.bounds.fewest}, but only {len(self.users)} users may join"
            )
        _check_secure(self.address, self.insecure, bool(self.certificate and self.key))
        return self

    def agreed(self) -> Terms:
        """The terms, with the digests of the public set.

        Raises:
            ValueError: naming the term that can't be; DataError where the public set can't be read.
        """
        terms = _checked(Terms, self.terms | {"public": {"images": ""}}, "terms")
        if isinstance(self.public, dict):
            digests = {str(reads): sha256 for reads, sha256 in self.public.items()}
        else:
            digests = {"images": public_digest(self.public, terms.public_size, "images")}
            with suppress(DataError):  # there are no captions
                digests["texts"] = public_digest(self.public, terms.public_size, "texts")
        terms = terms.model_copy(update={"public": digests})
        terms.check_users(sorted(self.users))
        return terms


class Limits(_Table):
    """What a party does at most, whatever the server asks.

    Attributes:
        rounds: it takes part in.
        seconds: from its start to its end.
        megabytes: of representations that it sends, in all.
        wait: seconds for a server that is silent or gone.
        replies: forms of a reply that it takes part in. By all but "gradient" it sees the others'
            representations, and they see its own.
        report: whether it tells the server its metric and that of its own local training.
    """

    rounds: int = Field(1000, ge=1)
    seconds: float = Field(7 * 86400, gt=0)
    megabytes: float = Field(10_000, gt=0)
    wait: float = Field(900, gt=0)
    replies: tuple[Literal["gradient", "factored", "dense"], ...] = ("gradient",)
    report: bool = False

    def check(self, terms: Terms) -> None:
        """Refuse terms that ask for more, before anything is sent; raises RefusedMessage, which
        names the limit.
        """
        for name, theirs in {"rounds": terms.rounds, "megabytes": terms.uplink_bytes / 1e6}.items():
            if theirs > (ours := getattr(self, name)):
                raise RefusedMessage(
                    f"the server asks for {theirs:g} {name}; the limit in your file is {ours:g}"
                )
        if terms.reply not in self.replies:
            raise RefusedMessage(
                f"the server sends {terms.reply} replies, which show others your representations;"
                " limits.replies has none"
            )


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


class PartyFile(_Table):
    """A party's TOML file, which it alone owns.

    Attributes:
        server: its address.
        user: the party's number in the federation.
        key: the file of its private key.
        root: the certificate that the server's is signed by, in PEM.
        insecure: whether there is no TLS; on loopback alone.
        state: folder of its checkpoints and its history.
        data: folder in the documented layout, with the public set.
        task: a name in ``fedmuscle_lib.tasks``. folder, client: where its files are,
        ``<folder>/<split>/client_<client>``; by default in the task's own folder.
        classes: how many, in a folder of its own, of a task whose files do not list them.
        train_samples: how many samples of its file it trains on.
        model: folder of its backbone.
        public: name of the public set in ``data``.
        compare: whether a copy trains beside it on local data alone, to compare with; it doubles
            local training.
        settings: other settings of its training, by the names of
            ``fedmuscle_lib.fedmuscle.settings.Settings``, such as lr, rank, seed, local_epochs and
            device; a profile's numbers fill in the others.
        limits: what it does at most.
    """

    server: Address
    user: int = Field(ge=1)
    key: Place
    root: Place | None = None
    insecure: bool = False
    state: Place
    data: Place
    task: str
    train_samples: int = Field(ge=1)
    folder: str | None = None
    client: int = Field(0, ge=0)
    classes: int | None = Field(None, ge=2)
    model: Place
    public: str = "voc"
    compare: bool = True
    settings: dict[str, Any] = {}
    limits: Limits = Limits()

    @model_validator(mode="after")
    def _is_secure(self) -> Self:
        _check_secure(self.server, self.insecure, self.root is not None)
        return self

    def training(self, terms: Terms) -> PartySettings:
        """Settings of the party's training under these terms, of which it takes sizes, rounds and
        dimension alone.

        Raises:
            ValueError: naming the setting that can't be.
        """
        user = User(
            self.user,
            self.model.name,
            self.task,
            self.client,
            self.train_samples,
            self.folder,
            self.classes,
        )
        own = {"profile": "paper", "device": "cpu", "train_samples": {}}
        places = {
            "data_dir": self.data,
            "models_path": self.model.parent,
            "backbones": {user.model: user.model},
            "public": self.public,
        }
        theirs = {
            name: getattr(terms, name)
            for name in ("rounds", "cl_epochs", "public_size", "proj_dim")
        }
        if twice := self.settings.keys() & {"party", *places, *theirs}:
            raise ValueError(
                f"settings: {min(twice)} is for the server's terms or for the file's own fields"
                " to say"
            )
        return any_run.parse(PartySettings, own | self.settings | places | theirs | {"party": user})

    @property
    def reads(self) -> Modality:
        """What the model reads of the public set."""
        return architecture_of(self.model).reads

    @property
    def public_folder(self) -> Path:
        """Where the public set is."""
        return self.data / PUBLIC_SETS[self.public]


F = TypeVar("F", bound=BaseModel)


def read(kind: type[F], path: Path | None, given: Mapping[str, Any]) -> F:
    """Read a TOML file, with values that replace its own; those of a table join it.

    Raises:
        ValueError: naming the file and the field.
        DataError: there is no such file.
    """
    name, content = str(path or "the command line"), {}
    if path is not None:
        try:
            content = tomllib.loads(read_bytes(path).decode())
        except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise ValueError(f"{path}: not TOML ({line_of(str(error))})") from None
    for field, value in given.items():
        tables = isinstance(value, dict) and isinstance(content.get(field), dict)
        content[field] = content[field] | value if tables else value
    return _checked(kind, content, name, path.absolute().parent if path else Path())


def _checked(kind: type[F], given: dict[str, Any], name: str, here: Path = Path()) -> F:
    try:
        return kind.model_validate(given, context={_HERE: here})
    except ValidationError as error:
        item = min(
            error.errors(include_url=False), key=lambda each: each["type"] != "extra_forbidden"
        )  # a misspelt field lacks too
        where = ".".join(map(str, item["loc"]))
        if item["type"] == "extra_forbidden":
            raise ValueError(
                f"{name}: unknown field {where!r}{meant(str(item['loc'][-1]), kind.model_fields)}"
            ) from None
        message = item["msg"].removeprefix("Value error, ")
        raise ValueError(f"{name}: {where + ': ' if where else ''}{line_of(message)}") from None
