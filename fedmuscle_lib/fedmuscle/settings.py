"""One experiment as a value: every number that a run depends on, and where the paper states it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    NonNegativeInt,
    PositiveFloat,
    StrictInt,
    Tag,
    model_validator,
)

from fedmuscle_lib.core.files import ROOT, user_path
from fedmuscle_lib.core.registry import check_known
from fedmuscle_lib.data.public import PUBLIC_SETS
from fedmuscle_lib.fedmuscle import algorithms
from fedmuscle_lib.fedmuscle.profiles import PROFILES, numbers_of, tuned_tasks
from fedmuscle_lib.fedmuscle.setups import SETUPS, User
from fedmuscle_lib.muscle.temperature import check_temperatures
from fedmuscle_lib.runs import settings as any_run
from fedmuscle_lib.runs.settings import BY, MATRIX, ONE, RunSettings, check_options, setting
from fedmuscle_lib.tasks import TASKS, ImageClassification, TextClassification

T = TypeVar("T")
# One value for all users, or values by task and a "default".
ByTask = Annotated[
    Annotated[T, Tag(ONE)] | Annotated[dict[str, T], Tag(BY)],
    Discriminator(lambda value: BY if isinstance(value, dict) else ONE),
]
_FORMS: dict[type, str] = {dict: BY, list: MATRIX, tuple: MATRIX}
# One value for all pairs of users, values by pairs, or a matrix.
Temperature = Annotated[
    Annotated[float, Tag(ONE)]
    | Annotated[dict[str, float], Tag(BY)]
    | Annotated[tuple[tuple[float, ...], ...], Tag(MATRIX)],
    Discriminator(lambda value: _FORMS.get(type(value), ONE)),
]
# The settings that are a ByTask. They are what a recipe of local training consists of, and what
# the notebook `tuning` compares.
BY_TASK = ("head_layers", "head_hidden", "lora_layers", "lora_blocks", "lr", "epochs")


class OwnData(BaseModel):
    """A user's own folder.

    Attributes:
        folder: of its train/, val/ and test/, and images/ where its files name images; a relative
            one starts from ``data_dir``.
        classes: how many, for a task that its files do not tell it: image or text classification.
        client: number of its files, ``client_<client>``; None for the setup's.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    folder: Annotated[
        str, AfterValidator(lambda text: str(user_path(text)) if text.startswith("~") else text)
    ] = Field(min_length=1)
    classes: int | None = Field(None, ge=2, le=100_000)
    client: int | None = Field(None, ge=0)


# Fields of a group of `run --help`.
federation, training, loss, model, place, machine = (
    partial(setting, group)
    for group in ("Federation", "Training", "Loss", "Model", "Data", "Machine")
)


class Settings(RunSettings):
    """Frozen and strict: an unknown or mistyped field is an error that names it.

    Fields that are not given take the protocol's value, then the profile's, then the default here,
    which is the paper's where it states one. The fields of BY_TASK take one value, or values by
    task, such as {"default": 1e-3, "MLC": 3e-3}.
    """

    system = "fedmuscle"
    labels = ("algorithm", "public", "setup")
    profiles = PROFILES
    joined = ("options", "backbones", "train_samples")

    algorithm: str = federation(
        "fedmuscle",
        'What the users do together. Section 6.1: "our proposed algorithm, FedMuscle". `python -m'
        " fedmuscle_lib algorithms` describes "
        f"all: {', '.join(algorithms.names())}.",
        aside=True,
        flag="aggregation_method",
    )
    setup: str = federation(
        "setup1",
        f'Who the users are: {", ".join(SETUPS)}. Appendix H: "In Setup1, we consider six users and'
        ' assign their tasks and FMs".',
    )
    public: str = federation(
        "voc",
        'Section 6.1: "entirely drawn from one of the following datasets: CIFAR-100, COCO, or'
        ' Pascal VOC"; Setup2: Flickr30K. '
        f"One of {', '.join(PUBLIC_SETS)}.",
        aside=True,
        flag="public_dataset_name",
    )
    profile: str = federation(
        "mini",
        f"Which numbers, data and checkpoints: {', '.join(PROFILES)}. The project's own.",
        aside=True,
    )
    protocol: Literal["fixed", "paper", "tuned"] = federation(
        "fixed",
        "Which recipe of local training: the profile's, one for all users; the paper's, where the"
        " profile has another one; or what was chosen by task on the validation split. Settings"
        " that are given override all three. The project's own.",
        aside=True,
    )
    seed: int = federation(
        0, "Draws the local training sets, initial weights, orders and peers.", ge=0, aside=True
    )

    rounds: int = training(
        150, 'R. Section 6.1: "set to 1, 150, and 1" (E, R, T).', ge=1, flag="num_epochs"
    )
    local_epochs: int = training(1, 'E. Section 6.1: "set to 1, 150, and 1" (E, R, T).', ge=0)
    epochs: ByTask[NonNegativeInt | None] = training(
        None,
        "Local epochs of the whole run, spread over its rounds as evenly as whole epochs can be;"
        " `local_epochs` is then not read. A number, or numbers by task. The paper's E is the same"
        " in every round.",
        neutral=None,
        paper="150",
    )
    cl_epochs: int = training(1, 'T. Section 6.1: "set to 1, 150, and 1" (E, R, T).', ge=1)
    batch_size: int = training(32, 'B. Section 6.1: "We set the batch size B to 32".', ge=2)
    public_batch_size: int | None = training(
        None,
        'Samples in a batch of public data; B by default. Algorithm 1 has one "batch size B", and'
        " Figure 5 varies it.",
        ge=2,
        neutral=None,
        open=(
            "open: whether local batches have B samples too; our default: both have. Table 5's"
            " costs come out with 20"
        ),
    )
    others: int = federation(
        3, 'M, without the anchor. Section 6.1: "the value of M in Algorithm 1 to 3".', ge=1
    )
    public_size: int = training(
        5000, 'Section 6.1: "The size of the shared public dataset is set to 5000".', ge=2
    )

    train_samples: dict[str, Annotated[StrictInt, Field(ge=1)]] = training(
        {},
        'Appendix G: "Each user performing the IC10 task has 50 training samples", IC100 100, MLC'
        ' 200, SS 1000, TC 100; other sizes by task, such as {"SS": 300}.',
    )
    local_draw: Literal["seed", "fixed"] = training(
        "seed",
        "Whether each seed draws D^n from the user's file, evenly over classes where a sample has"
        " one, or D^n is the file's first samples whatever the seed. Appendix G: \"uniformly"
        ' divided across users with the same task"; the original README "expects pre-partitioned'
        ' client data".',
        neutral="seed",
        open=(
            "open: the original README expects fixed files; our default: each seed draws from the"
            " user's, evenly over classes"
        ),
    )
    alpha: float = training(
        0.1,
        "Of the Dirichlet distribution that divides each class of a pool between the users of its"
        " task, anew for each seed, in setup_noniid. Test samples are divided alike. Section 6.2:"
        ' "divided across them using a Dirichlet distribution with alpha = 0.1".',
        gt=0,
        le=1e6,
        neutral=0.1,
    )
    augmentation: Literal["none", "weak"] = training(
        "none",
        "Of local images in local training: none, or a flip and a crop. Users who segment or read"
        " texts have none.",
        neutral="none",
        open="open; our default: none",
    )
    order: Literal["local_first", "alignment_first"] = training(
        "local_first",
        'Which phase comes first in a round of FedMuscle and its variants. Section 5: "The users'
        ' then perform T CL epochs", after E local epochs. With R = 1 this would mean Delta = 0'
        " before the alignment, and heads that no longer fit their backbones after it.",
        neutral="local_first",
        open=(
            "open: Algorithm 1 aligns last, as does our default; Table 8's Δ at R = 1, +5.7 to"
            " +12.8, speaks against it"
        ),
    )
    refit: int = training(
        0,
        "1: before each evaluation, every user (also in local training) trains a copy of its model"
        " for one more local phase; the copy is evaluated and discarded.",
        ge=0,
        le=1,
        neutral=0,
        open="open: when in a round a model is evaluated; our default: after each phase, as it is",
    )

    tau: Temperature = loss(
        0.2,
        "tau^(M+1) of equation (3), between the anchor and the others; a number, a matrix over"
        ' users, or numbers by pairs of tasks or users, such as {"default": 0.2, "SS-TC": 100}.'
        ' Section 6.1: "set to 0.2 and 0.15".',
    )
    tau_prime: Temperature = loss(
        0.15,
        'tau^(M), which with tau gives gamma of equation (3). Section 6.1: "set to 0.2 and 0.15".',
    )
    options: dict[str, Any] = federation(
        {},
        'Hyper-parameters of single algorithms, by "algorithm.option", such as {"simclr.tau": 0.5};'
        " the others ignore them. Not stated in the paper; each says where its value is from.",
        paper="not stated",
    )

    proj_dim: int = model(256, 'd. Section 6.1: "We set d ... to 256".', ge=2)
    rank: int = model(16, 'Section 6.1: "low-rank adaptation (LoRA) ... with a rank of 16".', ge=1)
    lora_alpha: int = model(
        16,
        "LoRA's updates are scaled by alpha / rank.",
        ge=1,
        open="open; our default: the default rank, so that nothing is rescaled",
    )
    lora_dropout: float = model(
        0.0,
        "Probability with which training drops an input of a LoRA matrix A.",
        ge=0,
        lt=1,
        neutral=0.0,
        open="open; our default: none",
    )
    lora_layers: ByTask[Literal["attention", "linear"]] = model(
        "attention",
        "Which layers of a block LoRA adapts: queries and values, or every linear layer, which in a"
        " convolutional network are the 1 x 1 convolutions; a name, or names by task.",
        open="open; our default: queries and values, as in Hu et al. (2022)",
    )
    lora_blocks: ByTask[Literal["all", "last", "none"]] = model(
        "all",
        "Which blocks LoRA adapts: all, the last third of a transformer or the last two stages and"
        " the top convolution of a convolutional network, or none; a name, or names by task. What"
        " stands before the first of them is computed once.",
        open="open; our default: all",
    )
    image_size: int = model(
        96,
        "Side in pixels of what users of convolutional networks classify; a ViT's is its"
        " checkpoint's. The paper has no such users.",
        ge=32,
        neutral=96,
        paper="no such users",
    )
    mask_size: int = model(
        512,
        "Side in pixels of what SS users segment.",
        ge=32,
        open="open; our default: what the paper's SegFormers were fine-tuned at",
    )
    text_length: int = model(
        128,
        "Tokens after which a text is cut.",
        ge=4,
        open="open; our default: more than captions have",
    )
    head_on: Literal["features", "normalised", "representation"] = model(
        "features",
        "What the prediction head reads: the backbone's pooled features, the projection then"
        " serving the alignment alone (the README's `projection=True`), these features with mean 0"
        " and variance 1 over each sample's dimensions, or the projected representation.",
        open=(
            'open: what the prediction head reads beside the "projection head" of Section 3,'
            " footnote 1; our default: the features"
        ),
    )
    projection: Literal["trained", "frozen"] = model(
        "trained",
        "Whether the projection to d is trained or stays as it was drawn. Section 3, footnote 1,"
        ' has a "projection head".',
        neutral="trained",
        open="open; our default: trained",
    )
    pooling: Literal["mean", "cls"] = model(
        "mean",
        "Whether features are the mean over patches, positions or a text's tokens, or the CLS"
        " token, which ViTs and BERTs have and other users' models have not. The README's"
        " `model_A(batch, projection=True)` does not show it.",
        neutral="mean",
        open="open; our default: the mean over patches, positions or tokens",
    )
    head_layers: ByTask[Annotated[int, Field(ge=1, le=2)]] = model(
        2,
        "Layers of a head that the paper gives two, a number or numbers by task; decoders and TC's"
        ' linear layer stay. Appendix H: "two linear layers with a rectified linear unit (ReLU) in'
        ' between".',
        neutral=2,
    )
    head_hidden: ByTask[Annotated[int, Field(ge=1)]] = model(
        256,
        "Width of a head of two layers, a number or numbers by task. "
        'Appendix H: "two linear layers with a rectified linear unit (ReLU) in between".',
        open="open; our default: 256, as for d",
    )

    lr: ByTask[PositiveFloat] = training(
        1e-3,
        'A number, or numbers by task. Section 6.1: "the AdamW optimizer ... with a learning rate'
        ' of 1e-3".',
    )
    weight_decay: float = training(
        0.01, "Of AdamW.", ge=0, open="open; our default: that of PyTorch's AdamW"
    )
    optimisers: Literal["separate", "shared", "each_round"] = training(
        "separate",
        "Whether local training and alignment have an AdamW each, since the gradients differ in"
        ' scale, one with common moments, or each a new one in every round. Section 6.1: "trained'
        ' using the AdamW optimizer".',
        neutral="separate",
        open=(
            'open: "the AdamW optimizer" is one or two, kept or not; our default: one for local'
            " steps, one for the alignment, kept"
        ),
    )

    reply: Literal["gradient", "factored", "dense"] = federation(
        "gradient",
        "How the server's answer travels; the update is the same. Section 5: \"receives the"
        ' aggregated matrix ... and the weighting coefficient vector", which is `dense`.',
        aside=True,
    )
    evaluate_on: Literal["test", "validation"] = training(
        "test",
        'Section 6.1: "accuracy on the test samples is used as the performance metric". Design'
        " choices look at `validation` alone.",
    )
    evaluate_every: int = training(
        1,
        "Rounds between evaluations; the first and last round are always evaluated. The project's"
        " own.",
        ge=1,
        aside=True,
    )

    users: tuple[int, ...] | None = federation(
        None, "Numbers of the users that take part; all by default. The project's own."
    )
    data_dir: Path = place(ROOT / "data", "Folder of the data; the README's data_dir.", aside=True)
    own: dict[int, OwnData] = place(
        {},
        'Users with data of their own, by number, such as {"9": {"folder": "/my/intents",'
        ' "classes": 150}}. The paper\'s users have its data sets.',
        neutral={},
    )
    models_path: Path = place(
        ROOT / "models", "Folder of the checkpoints, by name; the README's models_path.", aside=True
    )
    backbones: dict[str, str] = model(
        {},
        "The paper's model name -> checkpoint below models_path. Section 6.1, footnote 2: "
        '"Pre-trained FMs are downloaded from Hugging Face".',
        open=(
            "open: which ViT-Base; `paper` uses the one with 32 px patches, whose cost matches"
            " Table 1's 29 TFLOP (16 px: 37)"
        ),
    )
    precision: Literal["float32", "bfloat16"] = machine(
        "float32",
        "Of the backbones' matrix products, by autocast; losses stay in float32.",
        open="open; our default: that of PyTorch",
    )
    root_train_image_folder: Path | None = place(
        None, "MLC training images, if not below data_dir; a flag of the README's.", aside=True
    )
    root_val_image_folder: Path | None = place(
        None, "MLC evaluation images, if not below data_dir; a flag of the README's.", aside=True
    )

    @classmethod
    def numbers(cls, profile: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """The values of the profile for the setup and of the protocol, without what is not read
        beside what is given.
        """
        setup, protocol = (
            str(given.get(name, cls.model_fields[name].default)) for name in ("setup", "protocol")
        )
        numbers = numbers_of(profile, setup, protocol) | (
            cls._tuned(profile) if protocol == "tuned" else {}
        )
        if "local_epochs" in given:  # which would not be read beside others' total
            numbers.pop("epochs", None)
        tasks = {
            user.task for user in SETUPS.get(setup, ())
        }  # the profile's sizes are for whichever setup has the task
        return numbers | {
            "train_samples": {
                task: n for task, n in numbers.get("train_samples", {}).items() if task in tasks
            }
        }

    @classmethod
    def _tuned(cls, profile: str) -> dict[str, Any]:
        """Return the tuned recipes by task, as settings; other tasks have the profile's values.

        Raises:
            ValueError: the profile has none.
        """
        tasks = tuned_tasks(profile)
        if not tasks:
            raise ValueError(
                f"protocol: the profile {profile!r} has no tuned recipes;"
                " notebooks/tuning.ipynb makes them"
            )
        found = {}
        for name in BY_TASK:
            usual = PROFILES[profile].get(name, cls.model_fields[name].default)
            chosen = {task: one["recipe"][name] for task, one in tasks.items()}
            found[name] = (usual if isinstance(usual, dict) else {"default": usual}) | chosen
        return found

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        algorithm = algorithms.get(self.algorithm)
        check_known("public: unknown public set", self.public, PUBLIC_SETS)
        check_known("unknown setup", self.setup, SETUPS)
        numbers = [user.number for user in SETUPS[self.setup]]
        if self.users is not None and (
            not self.users or len(set(self.users) & set(numbers)) < len(self.users)
        ):
            raise ValueError(
                f"users: {list(self.users)}; {self.setup} has {numbers}, of whom each takes part"
                " once"
            )
        if unserved := [user for user in self.members if not algorithm.serves(user.task)]:
            raise ValueError(
                f"users: {self.algorithm} does not serve user {unserved[0].number}, who has"
                f" {unserved[0].task}"
            )
        models = {user.model for users in SETUPS.values() for user in users}
        for name in self.backbones:
            check_known("backbones: no user of any setup has", name, models)
        for name in sorted({user.model for user in self.members} - self.backbones.keys()):
            having = [each for each in PROFILES if name in PROFILES[each]["backbones"]]
            raise ValueError(
                f"backbones: no checkpoint is named for {name}, which {self.setup} has; profiles"
                f" that name one: {', '.join(having) or 'none'}"
            )
        most = len(self.members) - 1
        if "others" not in algorithm.ignores and self.others > most:
            remedy = f"--others {most} takes them all" if most else "name more users"
            raise ValueError(
                f"others: M = {self.others}, but a user has only {most} other users in"
                f" {self.setup}; {remedy}"
            )
        if "public_size" not in algorithm.ignores and self.public_batch > self.public_size:
            name = "public_batch_size" if self.public_batch_size else "batch_size"
            raise ValueError(
                f"{name}: B = {self.public_batch} is larger than the public set of"
                f" {self.public_size}"
            )
        tasks = {user.task for user in SETUPS[self.setup]}
        for task in self.train_samples:
            check_known(f"train_samples: nobody in {self.setup} has the task", task, tasks)
        self._check_own()
        self._check_tasks()
        check_options(self.options, algorithms)
        self._check_temperatures(ordered="tau_prime" not in algorithm.ignores and self.others > 1)
        return self

    def _check_own(self) -> None:
        users = {user.number: user for user in self.members}
        for number, data in self.own.items():
            if number not in users:
                raise ValueError(
                    f"own: no user {number} takes part; those who do: {', '.join(map(str, users))}"
                )
            if data.classes is not None and not isinstance(
                TASKS[users[number].task], ImageClassification | TextClassification
            ):
                raise ValueError(
                    f"own: classes are not for user {number}: the files of {users[number].task}"
                    " list them, or it has none"
                )

    def _check_tasks(self) -> None:
        for name in BY_TASK:
            value = getattr(self, name)
            if not isinstance(value, dict):
                continue
            if "default" not in value:
                raise ValueError(f"{name}: values by task need a 'default'")
            for task in sorted(value.keys() - {"default"}):
                check_known(f"{name}: no task", task, TASKS)
        for user in self.members:
            frozen = self.projection == "frozen" or TASKS[user.task].head == "language model"
            if frozen and self.of(user, "lora_blocks") == "none":
                raise ValueError(
                    f"lora_blocks: without LoRA user {user.number}, whose projection or head is"
                    " frozen, has nothing to train"
                )

    def _check_temperatures(self, ordered: bool) -> None:
        known = {user.task for user in SETUPS[self.setup]} | {
            str(user.number) for user in SETUPS[self.setup]
        }
        numbers, tables = [user.number for user in self.members], []
        for name in ("tau", "tau_prime"):
            value = getattr(self, name)
            if isinstance(value, dict):
                told = (
                    "neither two tasks, such as 'SS-TC', nor two users, such as '7-9', of"
                    f" {self.setup}"
                )
                check_pairs(
                    name,
                    value,
                    lambda one, other: {one, other} <= known and one.isdigit() == other.isdigit(),
                    told,
                )
                value = [
                    [self.temperature(name, first, second) for second in numbers]
                    for first in numbers
                ]
            tables.append(value)
        tau, tau_prime = tables
        check_temperatures(tau, tau_prime, [f"user {number}" for number in numbers], ordered)

    def temperature(self, name: str, first: int, second: int) -> float:
        """``tau`` or ``tau_prime`` between two users, by number: pairs of users go before pairs of
        tasks, and these before the default.
        """
        value = getattr(self, name)
        if isinstance(value, float):
            return value
        if isinstance(value, tuple):
            numbers = [user.number for user in self.members]
            return value[numbers.index(first)][numbers.index(second)]
        task = {user.number: user.task for user in self.members}
        one, other = task[first], task[second]
        pairs = (f"{first}-{second}", f"{second}-{first}", f"{one}-{other}", f"{other}-{one}")
        return next(value[key] for key in (*pairs, "default") if key in value)

    def of(self, user: User, name: str) -> Any:
        """A setting as ``user`` has it, which is its own only of those of BY_TASK."""
        value = getattr(self, name)
        return value.get(user.task, value["default"]) if isinstance(value, dict) else value

    def epochs_after(self, rounds: int, user: User) -> int:
        """Local epochs that ``user`` has behind it after so many rounds: floor(r E / R), or r times
        ``local_epochs`` where no E is set.
        """
        total = self.of(user, "epochs")
        return rounds * self.local_epochs if total is None else rounds * total // self.rounds

    def evaluates(self, round: int) -> bool:
        """Whether users are evaluated in a round, from 0: in the first, the last, and as often as
        ``evaluate_every`` says.
        """
        return (round + 1) % self.evaluate_every == 0 or round in (0, self.rounds - 1)

    def epochs_in(self, round: int, user: User) -> int:
        """Local epochs of ``user`` in a round, from 0: floor((r + 1) E / R) - floor(r E / R)."""
        return self.epochs_after(round + 1, user) - self.epochs_after(round, user)

    def effective(self) -> dict[str, Any]:
        """The settings of BY_TASK as the members have them: one value where they agree, else a
        value for each of their tasks.

        Epochs that come to the same number in every round of every member are ``local_epochs``, and
        no total; where they don't, there are no ``local_epochs``.
        """
        found = {
            name: {user.task: self.of(user, name) for user in self.members} for name in BY_TASK
        }
        found["epochs"] = {user.task: self.epochs_after(self.rounds, user) for user in self.members}
        seen = {
            name: values if len(set(values.values())) > 1 else next(iter(values.values()))
            for name, values in found.items()
        }
        if isinstance(seen["epochs"], dict) or seen["epochs"] % self.rounds:
            return seen | {"local_epochs": None}
        return seen | {"local_epochs": seen["epochs"] // self.rounds, "epochs": None}

    @property
    def split(self) -> str:
        """The files' folder that users are evaluated on."""
        return {"test": "test", "validation": "val"}[self.evaluate_on]

    @property
    def ignored(self) -> Collection[str]:
        return algorithms.get(self.algorithm).ignores

    @property
    def sees_public(self) -> bool:
        """Whether the algorithm looks at public data."""
        return "public" not in self.ignored

    @property
    def public_batch(self) -> int:
        """Samples in a batch of public data."""
        return self.public_batch_size or self.batch_size

    @property
    def title(self) -> str:
        """The run's name in lines of progress and in errors."""
        return f"{self.algorithm} {self.public} seed {self.seed}"

    @property
    def members(self) -> tuple[User, ...]:
        """The users that take part, in the setup's order, with the sizes of their local training
        sets.
        """
        chosen = (
            user for user in SETUPS[self.setup] if self.users is None or user.number in self.users
        )
        return tuple(self._configured(user) for user in chosen)

    def _configured(self, user: User) -> User:
        user = replace(user, train_samples=self.train_samples.get(user.task, user.train_samples))
        own = self.own.get(user.number)
        if own is None:
            return user
        client = user.client if own.client is None else own.client
        return replace(user, folder=own.folder, classes=own.classes, client=client, sharers=None)

    @property
    def own_train_samples(self) -> dict[str, int]:
        """Sizes of local training sets, by task, of the users that take part, where they are not
        Appendix G's.
        """
        usual = {user.number: user.train_samples for user in SETUPS[self.setup]}
        return {
            user.task: user.train_samples
            for user in self.members
            if user.train_samples != usual[user.number]
        }


def check_pairs(
    name: str, value: Mapping[str, float], fits: Callable[[str, str], bool], others: str
) -> None:
    """Check temperatures by pair, such as {"default": 0.2, "1-3": 0.5}.

    Args:
        fits: whether there is such a pair.
        others: what a pair is called that there is not.

    Raises:
        ValueError: naming the pair.
    """
    if "default" not in value:
        raise ValueError(f"{name}: temperatures by pair need a 'default'")
    for pair in value:
        first, dash, second = pair.partition("-")
        if pair != "default" and not (dash and fits(first, second)):
            raise ValueError(f"{name}: {pair!r} is {others}")
        if f"{second}-{first}" in value and first != second:
            raise ValueError(f"{name}: {pair!r} is listed twice, in both orders")


def parse(given: dict[str, Any]) -> Settings:
    """``Settings(**given)`` with an error that a person can act on; raises as
    :func:`fedmuscle_lib.runs.settings.parse`.
    """
    return any_run.parse(Settings, given)
