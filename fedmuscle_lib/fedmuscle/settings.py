"""One experiment as a value: every number that a run depends on, and where the paper states it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
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

from fedmuscle_lib.core.files import ROOT
from fedmuscle_lib.core.registry import meant
from fedmuscle_lib.data.public import PUBLIC_SETS
from fedmuscle_lib.fedmuscle import algorithms
from fedmuscle_lib.fedmuscle.profiles import PROFILES, numbers_of, tuned_file, tuned_recipes
from fedmuscle_lib.fedmuscle.setups import SETUPS, User
from fedmuscle_lib.runs import settings as any_run
from fedmuscle_lib.runs.settings import BY, RunSettings, check_options
from fedmuscle_lib.tasks import TASKS, ImageClassification, TextClassification

Temperature = float | dict[str, float] | tuple[tuple[float, ...], ...]

T = TypeVar("T")
# One value for all users, or values by task and a "default".
ByTask = Annotated[
    Annotated[T, Tag("one")] | Annotated[dict[str, T], Tag(BY)],
    Discriminator(lambda value: BY if isinstance(value, dict) else "one"),
]
# The settings that are a ByTask. They are what a recipe of local training consists of, and what `tune` chooses.
BY_TASK = ("head_layers", "head_hidden", "lora_layers", "lora_blocks", "lr", "epochs")


class OwnData(BaseModel):
    """A user's own folder.

    Attributes:
        folder: of its train/, val/ and test/, and images/ where its files name images; a relative one starts from ``data_dir``.
        classes: how many, for a task that its files do not tell it: image or text classification.
        client: number of its files, ``client_<client>``; None for the setup's.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    folder: str = Field(min_length=1)
    classes: int | None = Field(None, ge=2, le=100_000)
    client: int | None = Field(None, ge=0)


class Settings(RunSettings):
    """Frozen and strict: an unknown or mistyped field is an error that names it.

    Fields that are not given take the protocol's value, then the profile's, then the default here, which is the paper's where it states
    one. The fields of BY_TASK take one value, or values by task, such as {"default": 1e-3, "MLC": 3e-3}.
    """

    system = "fedmuscle"
    telling = ("algorithm", "public", "setup")

    algorithm: str = Field(
        "fedmuscle",
        description='What the users do together; `python -m fedmuscle_lib algorithms` lists them. Section 6.1: "our proposed algorithm, '
        'FedMuscle".',
    )
    setup: str = Field(
        "setup1", description='Who the users are. Appendix H: "In Setup1, we consider six users and assign their tasks and FMs".'
    )
    public: str = Field(
        "voc",
        description='Section 6.1: "entirely drawn from one of the following datasets: CIFAR-100, COCO, or Pascal VOC"; Setup2: Flickr30K.',
    )
    profile: str = Field("mini", description=f"Which numbers, data and checkpoints: {', '.join(PROFILES)}. The project's own.")
    protocol: Literal["fixed", "tuned"] = Field(
        "fixed",
        description="Whose recipe of local training: the profile's, one for all users, or what `tune` chose by task on the validation "
        "split. Settings that are given override both. The project's own.",
    )
    seed: int = Field(0, ge=0, description="Draws the local training sets, initial weights, orders and peers. Not stated in the paper.")

    rounds: int = Field(150, ge=1, description='R. Section 6.1: "set to 1, 150, and 1" (E, R, T).')
    local_epochs: int = Field(1, ge=0, description='E. Section 6.1: "set to 1, 150, and 1" (E, R, T).')
    epochs: ByTask[NonNegativeInt | None] = Field(
        None,
        json_schema_extra={"neutral": None},
        description="Local epochs of the whole run, spread over its rounds as evenly as whole epochs can be; `local_epochs` is then not "
        "read. A number, or numbers by task. Not stated in the paper, whose E is the same in every round.",
    )
    cl_epochs: int = Field(1, ge=1, description='T. Section 6.1: "set to 1, 150, and 1" (E, R, T).')
    batch_size: int = Field(32, ge=2, description='B. Section 6.1: "We set the batch size B to 32".')
    public_batch_size: int | None = Field(
        None,
        ge=2,
        json_schema_extra={"neutral": None},
        description='Samples in a batch of public data; B by default. Algorithm 1 has one "batch size B". Whether local batches have the '
        "same size, and whether Figure 5 varies both, is not stated in the paper. Public batches of 20 reproduce the costs in Table 5.",
    )
    others: int = Field(3, ge=1, description='M, without the anchor. Section 6.1: "the value of M in Algorithm 1 to 3".')
    robust: int = Field(
        0,
        ge=0,
        le=1,
        json_schema_extra={"neutral": 0},
        description="1: nobody is aligned with a user whose representations are constant, unrelated to the others' or turned away from "
        "them, as the server measures it without labels. Not stated in the paper, whose users are all honest.",
    )
    public_size: int = Field(5000, ge=2, description='Section 6.1: "The size of the shared public dataset is set to 5000".')

    train_samples: dict[str, StrictInt] = Field(
        default_factory=dict,
        description='Appendix G: "Each user performing the IC10 task has 50 training samples", IC100 100, MLC 200, SS 1000, TC 100; other '
        'sizes by task, such as {"SS": 300}.',
    )

    local_draw: Literal["seed", "fixed"] = Field(
        "seed",
        json_schema_extra={"neutral": "seed"},
        description="Whether each seed draws D^n from the user's file, evenly over classes where a sample has one, or D^n is the file's "
        "first samples whatever the seed. Not stated in the paper, which prints means and standard deviations and says that samples are "
        '"uniformly divided across users with the same task" (Appendix G); the original README "expects pre-partitioned client data".',
    )

    imbalance: float = Field(
        1.0,
        gt=0,
        le=1,
        json_schema_extra={"neutral": 1.0},
        description="Smallest class over largest in D^n of users with one label a sample (IC10, IC100, TC): class k of C keeps "
        "n_max imbalance^(k/(C-1)) of its samples (Cao et al. 2019), at least one. The seed draws each user's order of classes, so that "
        "what is rare for one may be frequent for its peers. Nothing replaces the others: D^n shrinks, `train_samples` is its size before. "
        "Other users, test sets and the public set stay as they are. Not stated in the paper, which has no long tails: 1.",
    )

    order: Literal["local_first", "alignment_first"] = Field(
        "local_first",
        json_schema_extra={"neutral": "local_first"},
        description='Which phase comes first in a round of FedMuscle and its variants. Section 5: "The users then perform T CL epochs", '
        "after E local epochs. With R = 1 this would mean Delta = 0 before the alignment, and heads that no longer fit their backbones "
        "after it. Table 8 prints +5.7, +10.2 and +12.8 for R = 1, so the paper's code may align first.",
    )
    refit: int = Field(
        0,
        ge=0,
        le=1,
        json_schema_extra={"neutral": 0},
        description="1: before each evaluation, every user (also in local training) trains a copy of its model for one more local phase; "
        "the copy is evaluated and discarded. Not stated in the paper, whose Algorithm 1 does not say when a model is evaluated.",
    )

    tau: Temperature = Field(
        0.2,
        description="tau^(M+1) of equation (3), between the anchor and the others; a number, a matrix over users, or numbers by pairs of "
        'tasks or users, such as {"default": 0.2, "SS-TC": 100}. Section 6.1: "set to 0.2 and 0.15".',
    )
    tau_prime: Temperature = Field(
        0.15, description='tau^(M), which with tau gives gamma of equation (3). Section 6.1: "set to 0.2 and 0.15".'
    )
    options: dict[str, Any] = Field(
        default_factory=dict,
        description='Hyper-parameters of single algorithms, by "algorithm.option", such as {"simclr.tau": 0.5}; the others ignore them. '
        "Not stated in the paper; each says where its value is from.",
    )

    proj_dim: int = Field(256, ge=2, description='d. Section 6.1: "We set d ... to 256".')
    rank: int = Field(16, ge=1, description='Section 6.1: "low-rank adaptation (LoRA) ... with a rank of 16".')
    lora_alpha: int = Field(16, ge=1, description="Not stated in the paper; equal to the rank, so that the adapters are not rescaled.")
    lora_layers: ByTask[Literal["attention", "linear"]] = Field(
        "attention",
        description="Which layers of a block LoRA adapts: queries and values, as in Hu et al. (2022), or every linear layer, which in a "
        "convolutional network are the 1 x 1 convolutions; a name, or names by task. Not stated in the paper.",
    )
    lora_blocks: ByTask[Literal["all", "last", "none"]] = Field(
        "all",
        description="Which blocks LoRA adapts: all, the last third of a transformer or the last two stages and the top convolution of a "
        "convolutional network, or none; a name, or names by task. Not stated in the paper; what stands before the first of them is "
        "computed once.",
    )
    image_size: int = Field(
        96,
        ge=32,
        json_schema_extra={"neutral": 96},
        description="Side in pixels of what users of convolutional networks classify; a ViT's is its checkpoint's. Not stated in the "
        "paper, which has no such users.",
    )
    mask_size: int = Field(
        512, ge=32, description="Side in pixels of what SS users segment. Not stated in the paper; what its SegFormers were fine-tuned at."
    )
    text_length: int = Field(128, ge=4, description="Tokens after which a text is cut. Not stated in the paper; captions are shorter.")
    head_on: Literal["features", "representation"] = Field(
        "features",
        description="What the prediction head reads: the backbone's pooled features, the projection then serving the alignment alone (the "
        "README's `projection=True`), or the projected representation. Section 3, footnote 1: \"appending a lightweight, learnable "
        'projection head"; what the other head then reads is not stated in the paper.',
    )
    pooling: Literal["mean", "cls"] = Field(
        "mean",
        json_schema_extra={"neutral": "mean"},
        description="Whether features are the mean over patches, positions or a text's tokens, or the CLS token, which ViTs and BERTs have "
        "and other users' models have not. Not stated in the paper, and the README's `model_A(batch, projection=True)` does not show it.",
    )
    pooled_stages: Literal["last", "all"] = Field(
        "last",
        description="Which of the four stages that the decoder reads an SS user's features are the mean of. Not stated in the paper; its "
        "Appendix R names the choice of a representation model as a limitation, and figures/mini/development.md has both.",
    )
    head_layers: ByTask[Annotated[int, Field(ge=1, le=2)]] = Field(
        2,
        json_schema_extra={"neutral": 2},
        description="Layers of a head that the paper gives two, a number or numbers by task; decoders and TC's linear layer stay. "
        'Appendix H: "two linear layers with a rectified linear unit (ReLU) in between".',
    )
    head_hidden: ByTask[Annotated[int, Field(ge=1)]] = Field(
        256,
        description="Width of a head of two layers, a number or numbers by task. "
        'Appendix H: "two linear layers with a rectified linear unit (ReLU) in between", no width stated.',
    )

    lr: ByTask[PositiveFloat] = Field(
        1e-3, description='A number, or numbers by task. Section 6.1: "the AdamW optimizer ... with a learning rate of 1e-3".'
    )
    weight_decay: float = Field(0.01, ge=0, description="Not stated in the paper; AdamW's default.")
    optimisers: Literal["separate", "shared"] = Field(
        "separate",
        json_schema_extra={"neutral": "separate"},
        description='Whether local training and alignment have an AdamW each, or one with common moments. Section 6.1: "trained using the '
        'AdamW optimizer"; whether that is one is not stated in the paper. Ours are two, since the gradients differ in scale.',
    )

    reply: Literal["gradient", "factored", "dense"] = Field(
        "gradient",
        description="How the server's answer travels; the update is the same. Section 5: \"receives the aggregated matrix ... and the "
        'weighting coefficient vector", which is `dense`.',
    )
    evaluate_on: Literal["test", "validation"] = Field(
        "test",
        description='Section 6.1: "accuracy on the test samples is used as the performance metric". Design choices look at `validation` '
        "alone.",
    )
    evaluate_every: int = Field(
        1, ge=1, description="Rounds between evaluations; the first and last round are always evaluated. The project's own."
    )

    users: tuple[int, ...] | None = Field(None, description="Numbers of the users that take part; all by default. The project's own.")
    data_dir: Path = Field(ROOT / "data", description="Folder of the data. Not stated in the paper; the README's data_dir.")
    own: dict[int, OwnData] = Field(
        default_factory=dict,
        json_schema_extra={"neutral": {}},
        description='Users with data of their own, by number, such as {"9": {"folder": "/my/intents", "classes": 150}}. Not stated in the '
        "paper, whose users have its data sets.",
    )
    models_path: Path = Field(
        ROOT / "models", description="Folder of the checkpoints, by name. Not stated in the paper; the README's models_path."
    )
    backbones: dict[str, str] = Field(
        default_factory=dict,
        description="The paper's model name -> checkpoint below models_path. Section 6.1, footnote 2: "
        '"Pre-trained FMs are downloaded from Hugging Face".',
    )
    precision: Literal["float32", "bfloat16"] = Field(
        "float32", description="Of the backbones' matrix products, by autocast; losses stay in float32. Not stated in the paper."
    )
    threads: int = Field(
        2, ge=1, le=1024, description="Torch threads of a run. Not stated in the paper; small models are fastest, and repeatable, on one."
    )
    root_train_image_folder: Path | None = Field(
        None, description="MLC training images, if not below data_dir. Not stated in the paper; a flag of the README's."
    )
    root_val_image_folder: Path | None = Field(
        None, description="MLC evaluation images, if not below data_dir. Not stated in the paper; a flag of the README's."
    )
    device: str = Field(
        "cpu",
        description="A torch device, such as `cpu` or `cuda:0`; `auto` is the first GPU, or else the CPU. "
        'Section 6.1: "run all experiments on NVIDIA Tesla V100 GPUs".',
    )

    @model_validator(mode="before")
    @classmethod
    def _fill_from_profile(cls, given: dict[str, Any]) -> dict[str, Any]:
        profile = given.get("profile", cls.model_fields["profile"].default)
        if not isinstance(profile, str) or profile not in PROFILES:
            raise ValueError(f"unknown profile {profile!r}{meant(profile, PROFILES)}")
        for name, value in given.items():
            if truths := [one for one in _values(name, value) if isinstance(one, bool)]:
                raise ValueError(f"{name}: got {truths[0]}, and no setting is a truth value")
        if isinstance(own := given.get("own"), dict) and len({str(user).lstrip("0") for user in own}) < len(own):
            raise ValueError("own: a user stands there twice")
        setup = given.get("setup", cls.model_fields["setup"].default)
        numbers = numbers_of(profile, str(setup)) | (cls._tuned(profile) if given.get("protocol") == "tuned" else {}) | given
        if "local_epochs" in given:  # which would not be read beside others' total
            numbers["epochs"] = given.get("epochs")
        if isinstance(given.get("backbones"), dict):
            numbers["backbones"] = PROFILES[profile].get("backbones", {}) | given["backbones"]
        if isinstance(own := given.get("options", {}), dict):
            numbers["options"] = numbers_of(profile, str(setup)).get("options", {}) | own
        if isinstance(sizes := given.get("train_samples", {}), dict):  # a profile's are for whichever setup has the task
            tasks = {user.task for name, users in SETUPS.items() if name == setup for user in users}
            served = PROFILES[profile].get("train_samples", {})
            numbers["train_samples"] = {task: n for task, n in served.items() if task in tasks} | sizes
        return numbers

    @classmethod
    def _tuned(cls, profile: str) -> dict[str, Any]:
        """What `tune` chose by task, as settings; other tasks have the profile's values.

        Raises:
            ValueError: it has chosen nothing for this profile, or a recipe lacks a setting, has another one, or one of no value.
        """
        recipes = tuned_recipes(profile)
        for task, recipe in recipes.items():
            if wrong := sorted(recipe.keys() ^ set(BY_TASK)):
                raise ValueError(f"{tuned_file(profile)}: the recipe of {task} {'has' if wrong[0] in recipe else 'lacks'} {wrong[0]!r}")
            if truths := [name for name, value in recipe.items() if isinstance(value, bool)]:
                raise ValueError(f"{tuned_file(profile)}: {truths[0]} of {task} is a truth value")
        if not recipes:
            raise ValueError(
                f"protocol: the profile {profile!r} has no tuned recipes; `python -m fedmuscle_lib tune --profile {profile}` makes them"
            )
        found = {}
        for name in BY_TASK:
            usual = PROFILES[profile].get(name, cls.model_fields[name].default)
            chosen = {task: recipe[name] for task, recipe in recipes.items() if name in recipe}
            found[name] = (usual if isinstance(usual, dict) else {"default": usual}) | chosen
        return found

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        algorithm = algorithms.get(self.algorithm)
        if self.public not in PUBLIC_SETS:
            raise ValueError(f"public: unknown public set {self.public!r}{meant(self.public, PUBLIC_SETS)}")
        if self.setup not in SETUPS:
            raise ValueError(f"unknown setup {self.setup!r}{meant(self.setup, SETUPS)}")
        numbers = [user.number for user in SETUPS[self.setup]]
        if unknown := set(self.users or ()) - set(numbers):
            raise ValueError(f"users: {self.setup} has no user {min(unknown)}; it has {numbers}")
        if len(set(self.users or ())) < len(self.users or ()):
            raise ValueError("users: a number stands there twice")
        if not self.members:
            raise ValueError(f"users: at least one of {numbers} takes part")
        if unserved := [user for user in self.members if not algorithm.serves(user.task)]:
            raise ValueError(f"users: {self.algorithm} does not serve user {unserved[0].number}, who has {unserved[0].task}")
        models = {user.model for users in SETUPS.values() for user in users}
        if misspelt := self.backbones.keys() - models:
            raise ValueError(f"backbones: no user of any setup has {min(misspelt)!r}{meant(min(misspelt), models)}")
        if lacking := {user.model for user in self.members} - self.backbones.keys():
            having = [profile for profile, numbers in PROFILES.items() if min(lacking) in numbers["backbones"]]
            raise ValueError(
                f"backbones: no checkpoint is named for {min(lacking)}, which {self.setup} has"
                + (f"; the profile {' or '.join(having)} names one" if having else "")
            )
        if "others" not in algorithm.ignores and self.others > len(self.members) - 1:
            raise ValueError(f"others: M = {self.others}, but a user has only {len(self.members) - 1} other users in {self.setup}")
        if "public_size" not in algorithm.ignores and self.public_batch > self.public_size:
            name = "public_batch_size" if self.public_batch_size else "batch_size"
            raise ValueError(f"{name}: B = {self.public_batch} is larger than the public set of {self.public_size}")
        self._check_train_samples()
        self._check_own()
        self._check_tasks()
        check_options(self.options, {name: algorithms.get(name).Options for name in algorithms.names()})
        self._check_temperatures()
        if "tau_prime" not in algorithm.ignores and self.others > 1:
            self._check_gamma()
        return self

    def _check_train_samples(self) -> None:
        tasks = {user.task for user in SETUPS[self.setup]}
        for task, n in self.train_samples.items():
            if task not in tasks:
                raise ValueError(f"train_samples: nobody in {self.setup} has the task {task!r}{meant(task, tasks)}")
            if n < 1:
                raise ValueError(f"train_samples: a user with {task} has at least one, got {n}")

    def _check_own(self) -> None:
        users = {user.number: user for user in self.members}
        for number, data in self.own.items():
            if number not in users:
                raise ValueError(f"own: no user {number} takes part; those who do: {', '.join(map(str, users))}")
            if data.classes is not None and not isinstance(TASKS[users[number].task], ImageClassification | TextClassification):
                raise ValueError(f"own: classes are not for user {number}: the files of {users[number].task} list them, or it has none")

    def _check_tasks(self) -> None:
        for name in BY_TASK:
            value = getattr(self, name)
            if not isinstance(value, dict):
                continue
            if "default" not in value:
                raise ValueError(f"{name}: values by task need a 'default'")
            if unknown := sorted(value.keys() - TASKS.keys() - {"default"}):
                raise ValueError(f"{name}: no task {unknown[0]!r}{meant(unknown[0], TASKS)}")
        for user in self.members:
            if TASKS[user.task].head == "language model" and self.of(user, "lora_blocks") == "none":
                raise ValueError(
                    f"lora_blocks: without LoRA user {user.number} has nothing to train, since a language model's head is frozen"
                )

    def _check_temperatures(self) -> None:
        for name in ("tau", "tau_prime"):
            value = getattr(self, name)
            n = len(self.members)
            if isinstance(value, dict):
                self._check_pairs(name, value)
                continue
            rows = value if isinstance(value, tuple) else ((value,),)
            if isinstance(value, tuple) and (len(rows) != n or any(len(row) != n for row in rows)):
                raise ValueError(f"{name}: a matrix of temperatures is users x users, here {n} x {n}")
            if smallest := [t for row in rows for t in row if not t > 0]:
                raise ValueError(f"{name}: a temperature is positive, got {smallest[0]}")
            if isinstance(value, tuple) and any(rows[i][j] != rows[j][i] for i in range(n) for j in range(i)):
                raise ValueError(f"{name}: a matrix of temperatures is symmetric (Appendix A)")

    def _check_pairs(self, name: str, value: dict[str, float]) -> None:
        if "default" not in value:
            raise ValueError(f"{name}: temperatures by pair need a 'default'")
        known = {user.task for user in SETUPS[self.setup]} | {str(user.number) for user in SETUPS[self.setup]}
        for pair, t in value.items():
            first, dash, second = pair.partition("-")
            if pair != "default" and not (dash and {first, second} <= known and first.isdigit() == second.isdigit()):
                raise ValueError(f"{name}: {pair!r} is neither two tasks, such as 'SS-TC', nor two users, such as '7-9', of {self.setup}")
            if f"{second}-{first}" in value and first != second:
                raise ValueError(f"{name}: {pair!r} stands there twice, in both orders")
            if not t > 0:
                raise ValueError(f"{name}: a temperature is positive, got {t}")

    def _check_gamma(self) -> None:
        """Remark 1: tau^(M+1) > tau^(M) for every pair of others, so that gamma is positive; 0 is admitted, for pairwise alignment."""
        for first, second in combinations([user.number for user in self.members], 2):
            tau, tau_prime = (self.temperature(name, first, second) for name in ("tau", "tau_prime"))
            if tau_prime > tau:
                raise ValueError(f"tau_prime: {tau_prime} is larger than tau = {tau}; Remark 1 wants it smaller")

    def temperature(self, name: str, first: int, second: int) -> float:
        """``tau`` or ``tau_prime`` between two users, by number: pairs of users go before pairs of tasks, and these before the default."""
        value = getattr(self, name)
        if isinstance(value, float):
            return value
        if isinstance(value, tuple):
            numbers = [user.number for user in self.members]
            return value[numbers.index(first)][numbers.index(second)]
        task = {user.number: user.task for user in self.members}
        pairs = [(first, second), (second, first), (task[first], task[second]), (task[second], task[first])]
        return next((value[f"{a}-{b}"] for a, b in pairs if f"{a}-{b}" in value), value["default"])

    def of(self, user: User, name: str) -> Any:
        """A setting of BY_TASK as ``user`` has it."""
        value = getattr(self, name)
        return value.get(user.task, value["default"]) if isinstance(value, dict) else value

    def epochs_after(self, rounds: int, user: User) -> int:
        """Local epochs that ``user`` has behind it after so many rounds: floor(r E / R), or r times ``local_epochs`` where no E is set."""
        total = self.of(user, "epochs")
        return rounds * self.local_epochs if total is None else rounds * total // self.rounds

    def epochs_in(self, round: int, user: User) -> int:
        """Local epochs of ``user`` in a round, from 0: floor((r + 1) E / R) - floor(r E / R)."""
        return self.epochs_after(round + 1, user) - self.epochs_after(round, user)

    def as_seen(self) -> dict[str, Any]:
        """The settings of BY_TASK as the members have them: one value where they agree, else a value for each of their tasks.

        Epochs that come to the same number in every round of every member are ``local_epochs``, and no total; where they don't, there
        are no ``local_epochs``.
        """
        found = {name: {user.task: self.of(user, name) for user in self.members} for name in BY_TASK}
        found["epochs"] = {user.task: self.epochs_after(self.rounds, user) for user in self.members}
        seen = {name: values if len(set(values.values())) > 1 else next(iter(values.values())) for name, values in found.items()}
        if isinstance(seen["epochs"], dict) or seen["epochs"] % self.rounds:
            return seen | {"local_epochs": None}
        return seen | {"local_epochs": seen["epochs"] // self.rounds, "epochs": None}

    @property
    def public_batch(self) -> int:
        """Samples in a batch of public data."""
        return self.public_batch_size or self.batch_size

    @property
    def title(self) -> str:
        """The run's name in lines of progress and in errors."""
        return f"{self.algorithm} {self.public} seed {self.seed}"

    def usual(self) -> dict[str, Any]:
        """The values of the settings' profile."""
        return PROFILES[self.profile]

    @property
    def members(self) -> tuple[User, ...]:
        """The users that take part, in the setup's order, with the sizes of their local training sets."""
        chosen = (user for user in SETUPS[self.setup] if self.users is None or user.number in self.users)
        return tuple(self._as_asked(user) for user in chosen)

    def _as_asked(self, user: User) -> User:
        user = replace(user, train_samples=self.train_samples.get(user.task, user.train_samples))
        own = self.own.get(user.number)
        if own is None:
            return user
        return replace(user, folder=own.folder, classes=own.classes, client=user.client if own.client is None else own.client)

    @property
    def own_train_samples(self) -> dict[str, int]:
        """Sizes of local training sets, by task, of the users that take part, where they are not Appendix G's."""
        usual = {user.number: user.train_samples for user in SETUPS[self.setup]}
        return {user.task: user.train_samples for user in self.members if user.train_samples != usual[user.number]}


def _values(name: str, value: Any) -> Collection[Any]:
    """A setting's value, and its values by task."""
    return [value, *value.values()] if name in BY_TASK and isinstance(value, dict) else [value]


def parse(given: dict[str, Any]) -> Settings:
    """``Settings(**given)`` with an error that a person can act on.

    Raises:
        ValueError: unknown field, wrong type, or settings that contradict each other.
    """
    return any_run.parse(Settings, given)
