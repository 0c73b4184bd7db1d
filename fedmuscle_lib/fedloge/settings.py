"""One long-tailed federation as a value: every number that a run depends on, and where it is from.

"The paper" is FedLoGe's (Xiao et al., ICLR 2024), "the authors' code" is https://github.com/ZackZikaiXiao/FedLoGe at f4cac52, whose README
gives one command.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator

from fedmuscle_lib.core.files import ROOT
from fedmuscle_lib.core.registry import meant
from fedmuscle_lib.fedloge import methods
from fedmuscle_lib.fedloge.methods.method import Method
from fedmuscle_lib.fedloge.networks import NETWORKS
from fedmuscle_lib.runs.settings import RunSettings, check_options, read_profile

PROFILES: dict[str, dict[str, Any]] = {
    path.stem: read_profile(path) for path in sorted((Path(__file__).parent / "profiles").glob("*.toml"))
}


class Settings(RunSettings):
    """Frozen and strict: an unknown or mistyped field is an error that names it.

    Fields that are not given take the profile's value, then the default here, which is that of the README's command, or else of the
    authors' code.
    """

    system = "fedloge"
    telling = ("algorithm", "data")

    algorithm: str = Field("fedloge", description=f"What the clients do together: one of {', '.join(methods.names())}.")
    data: str = Field("cifar100_lt", description="Folder of the labelled set below data_dir/FedLT. README: CIFAR-10/100.")
    profile: str = Field("mini", description=f"Which numbers and data: {', '.join(PROFILES)}. The project's own.")
    seed: int = Field(0, ge=0, description="Draws the long tail, shares, initial weights, participants, orders. Code: 3407.")

    rounds: int = Field(500, ge=1, description="Communication rounds. The authors' code: 500.")
    clients: int = Field(40, ge=1, description="K. README: `--num_users 40`; the authors' logs of CIFAR-100 have 20.")
    participation: float = Field(
        0.3, gt=0, le=1, description="Share of the clients in a round. README: `--frac 0.3`; in the authors' logs all take part."
    )
    imbalance: float = Field(0.01, gt=0, le=1, description="Smallest class over largest (IF). README: `--IF 0.01`.")
    alpha: float = Field(
        0.5, gt=0, le=1e6, description="Of the Dirichlet distribution that divides each class. README: `--alpha_dirichlet 0.5`."
    )
    image_size: int | None = Field(
        None,
        ge=8,
        le=512,
        description="Side in pixels that pictures are resized to; as they are by default. Needed for sets of picture files.",
    )

    network: str = Field("resnet34", description=f"The backbone: one of {', '.join(NETWORKS)}. README: ResNet-34 for CIFAR-100.")
    local_epochs: int = Field(5, ge=1, description="Local epochs a round. The authors' code: 5.")
    batch_size: int = Field(8, ge=1, description="Samples in a local step. The authors' code: 8.")
    lr: float = Field(0.03, gt=0, description="Of SGD. The authors' code: 0.03, without a schedule.")
    momentum: float = Field(0.5, ge=0, lt=1, description="Of SGD, anew at each visit of a client. The authors' code: 0.5.")
    weight_decay: float = Field(0.0, ge=0, description="Of SGD. The authors' code: none.")
    padding: int = Field(4, ge=0, description="Pixels of the border out of which training crops a picture. The authors' code: 4.")
    flip: int = Field(
        1, ge=0, le=1, description="1: training mirrors every other picture. The authors' code does; glyphs would change their class."
    )
    options: dict[str, Any] = Field(
        default_factory=dict,
        description='Hyper-parameters of single algorithms, by "algorithm.option", such as {"fedprox.mu": 0.1}; the others ignore them.',
    )

    evaluate_every: int = Field(1, ge=1, description="Rounds between evaluations; the last round is always evaluated. The project's own.")
    data_dir: Path = Field(ROOT / "data", description="Folder of the data. The project's own.")
    threads: int = Field(2, ge=1, le=1024, json_schema_extra={"neutral": 1}, description="Torch threads of a run. The project's own.")
    device: str = Field(
        "cpu", description="A torch device, such as `cpu` or `cuda:0`; `auto` is the first GPU, or else the CPU. README: `--gpu 0`."
    )

    @model_validator(mode="before")
    @classmethod
    def _fill_from_profile(cls, given: dict[str, Any]) -> dict[str, Any]:
        profile = given.get("profile", cls.model_fields["profile"].default)
        if not isinstance(profile, str) or profile not in PROFILES:
            raise ValueError(f"unknown profile {profile!r}{meant(profile, PROFILES)}")
        if truths := [name for name, value in given.items() if isinstance(value, bool)]:
            raise ValueError(f"{truths[0]}: got {given[truths[0]]}, and no setting is a truth value")
        numbers = PROFILES[profile] | given
        if isinstance(own := given.get("options", {}), dict):
            numbers["options"] = PROFILES[profile].get("options", {}) | own
        return numbers

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        if self.network not in NETWORKS:
            raise ValueError(f"network: unknown {self.network!r}{meant(self.network, NETWORKS)}")
        methods.get(self.algorithm)
        check_options(self.options, {name: methods.get(name).Options for name in methods.names()})
        return self

    @property
    def title(self) -> str:
        return f"{self.algorithm} {self.data} seed {self.seed}"

    def usual(self) -> dict[str, Any]:
        return PROFILES[self.profile]

    @property
    def method(self) -> type[Method]:
        """The algorithm's class."""
        return methods.get(self.algorithm)

    @property
    def own_options(self) -> dict[str, Any]:
        """The algorithm's own hyper-parameters, by their names in its Options."""
        prefix = f"{self.algorithm}."
        return {name.removeprefix(prefix): value for name, value in self.options.items() if name.startswith(prefix)}
