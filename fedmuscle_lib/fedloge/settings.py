"""One long-tailed federation as a value: every number that a run depends on, and where it is from.

"The paper" is FedLoGe's (Xiao et al., ICLR 2024), "the authors' code" is
https://github.com/ZackZikaiXiao/FedLoGe at f4cac52, whose README gives one command.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Self

from pydantic import model_validator

from fedmuscle_lib.core.files import ROOT
from fedmuscle_lib.core.registry import check_known
from fedmuscle_lib.fedloge import methods
from fedmuscle_lib.fedloge.methods.method import Method
from fedmuscle_lib.fedloge.networks import NETWORKS
from fedmuscle_lib.runs.settings import DEVICE, RunSettings, check_options, read_profiles, setting

PROFILES = read_profiles(Path(__file__).parent / "profiles")

# Fields of a group of `fedloge --help`.
federation, place, training, machine = (
    partial(setting, group) for group in ("Federation", "Data", "Training", "Machine")
)


class Settings(RunSettings):
    """Frozen and strict: an unknown or mistyped field is an error that names it.

    Fields that are not given take the profile's value, then the default here, which is that of the
    README's command, or else of the authors' code.
    """

    system = "fedloge"
    labels = ("algorithm", "data")
    profiles = PROFILES

    algorithm: str = federation(
        "fedloge", f"What the clients do together: one of {', '.join(methods.names())}.", aside=True
    )
    data: str = place(
        "cifar100_lt", "Folder of the labelled set below data_dir/FedLT. README: CIFAR-10/100."
    )
    profile: str = federation(
        "mini", f"Which numbers and data: {', '.join(PROFILES)}. The project's own.", aside=True
    )
    seed: int = federation(
        0,
        "Draws the long tail, shares, initial weights, participants, orders. Code: 3407.",
        ge=0,
        aside=True,
    )

    rounds: int = federation(500, "Communication rounds. The authors' code: 500.", ge=1)
    clients: int = federation(
        40,
        "K. README: `--num_users 40`; the authors' logs of CIFAR-100 have 20.",
        ge=1,
        flag="num_users",
    )
    participation: float = federation(
        0.3,
        "Share of the clients in a round. README: `--frac 0.3`; in the authors' logs all take"
        " part.",
        gt=0,
        le=1,
        flag="frac",
    )
    imbalance: float = place(
        0.01, "Smallest class over largest (IF). README: `--IF 0.01`.", gt=0, le=1, flag="IF"
    )
    alpha: float = place(
        0.5,
        "Of the Dirichlet distribution that divides each class. README: `--alpha_dirichlet 0.5`.",
        gt=0,
        le=1e6,
        flag="alpha_dirichlet",
    )
    image_size: int | None = place(
        None,
        "Side in pixels that images are resized to; as they are by default. Needed for sets of"
        " image files.",
        ge=8,
        le=512,
    )

    network: str = training(
        "resnet34", f"The backbone: one of {', '.join(NETWORKS)}. README: ResNet-34 for CIFAR-100."
    )
    local_epochs: int = training(5, "Local epochs a round. The authors' code: 5.", ge=1)
    batch_size: int = training(8, "Samples in a local step. The authors' code: 8.", ge=1)
    lr: float = training(0.03, "Of SGD. The authors' code: 0.03, without a schedule.", gt=0)
    momentum: float = training(
        0.5, "Of SGD, anew at each visit of a client. The authors' code: 0.5.", ge=0, lt=1
    )
    weight_decay: float = training(0.0, "Of SGD. The authors' code: none.", ge=0)
    padding: int = place(
        4, "Pixels of the border out of which training crops an image. The authors' code: 4.", ge=0
    )
    flip: int = place(
        1,
        "1: training mirrors every other image. The authors' code does; glyphs would change their"
        " class.",
        ge=0,
        le=1,
    )
    options: dict[str, Any] = federation(
        {},
        'Hyper-parameters of single algorithms, by "algorithm.option", such as {"fedprox.mu": 0.1};'
        " the others ignore them.",
    )

    evaluate_every: int = federation(
        1,
        "Rounds between evaluations; the last round is always evaluated. The project's own.",
        ge=1,
        aside=True,
    )
    data_dir: Path = place(ROOT / "data", "Folder of the data. The project's own.", aside=True)
    threads: int = machine(
        2, "Torch threads of a run. The project's own.", ge=1, le=1024, neutral=1, aside=True
    )
    device: str = machine(
        "cpu",
        f"{DEVICE} README: `--gpu 0`.",
        aside=True,
        flag="gpu",
    )

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        check_known("network: unknown", self.network, NETWORKS)
        methods.get(self.algorithm)
        check_options(self.options, methods)
        return self

    @property
    def method(self) -> type[Method]:
        """The algorithm's class."""
        return methods.get(self.algorithm)
