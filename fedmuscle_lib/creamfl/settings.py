"""One federation of CreamFL as a value: every number that a run depends on, and where it is from.

"The paper" is FedMuscle's, which "retained all of their original hyperparameters" (Appendix M);
"code" is CreamFL's authors' (https://github.com/FLAIR-THU/CreamFL at 264252c).
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import NonNegativeInt, model_validator

from fedmuscle_lib.core.files import ROOT
from fedmuscle_lib.core.registry import check_known
from fedmuscle_lib.creamfl import algorithms
from fedmuscle_lib.creamfl.kinds import KINDS
from fedmuscle_lib.creamfl.retrieval import FOLDS
from fedmuscle_lib.runs.settings import RunSettings, check_options, read_profiles, setting

PROFILES = read_profiles(Path(__file__).parent / "profiles")

# Fields of a group of `creamfl --help`.
federation, place, model, training = (
    partial(setting, group) for group in ("Federation", "Data", "Models", "Training")
)


class Settings(RunSettings):
    """Frozen and strict: an unknown or mistyped field is an error that names it.

    Fields that are not given take the profile's value, then the default here, which is the paper's
    or the authors' code's.
    """

    system = "creamfl"
    labels = ("algorithm",)
    profiles = PROFILES
    joined: ClassVar[tuple[str, ...]] = ("options", "clients", "networks")

    algorithm: str = federation(
        "creamfl_muscle",
        f"What the parties do: one of {', '.join(algorithms.names())}.",
        aside=True,
    )
    profile: str = federation(
        "mini", f"Which numbers and data: {', '.join(PROFILES)}. The project's own.", aside=True
    )
    seed: int = federation(
        0,
        "Draws partitions, initial weights, participants, orders. The project's own.",
        ge=0,
        aside=True,
    )
    rounds: int = federation(30, "Communication rounds. Code: 30.", ge=1)
    clients: dict[str, NonNegativeInt] = federation(
        {"images": 10, "texts": 10, "pairs": 15},
        'Clients of each kind. Section 6.2: "10 uni-modal image users ..., 10 uni-modal text users'
        ' ..., and 15 multi-modal users".',
    )
    participants: int = federation(10, "Clients in a round, drawn uniformly. Code: 10.", ge=1)
    options: dict[str, Any] = federation(
        {},
        'Hyper-parameters of single algorithms, by "algorithm.option", such as'
        ' {"creamfl_muscle.others": 2}; the others ignore them.',
    )
    evaluate_every: int = federation(
        1,
        "Rounds between evaluations; the last round is always evaluated. Code: every round.",
        ge=1,
        aside=True,
    )

    data_dir: Path = place(ROOT / "data", "Folder of the data. The project's own.", aside=True)
    public_folder: str = place(
        "MM/coco",
        'Of the public pairs, below data_dir. Section 6.2: "COCO is used as the public dataset".',
    )
    public_size: int = place(
        50_000, "Public pairs: images with their first caption. Code: 50,000 captions.", ge=2
    )
    test_folder: str = place(
        "MM/coco", "Of the test set, below data_dir. Code: COCO, Karpathy's test split."
    )
    test_size: int = place(5000, "Test images. The paper: 5K.", ge=FOLDS)
    pairs_folder: str = place(
        "TC/flicker_public", 'Of the clients with pairs, below data_dir. Section 6.2: "Flickr30K".'
    )
    pairs_size: int = place(
        29_000, "Images that these divide with all captions. Code: 29,000.", ge=2
    )
    images_folder: str = place(
        "IC/CIFAR100_pool", 'Of the clients with images, below data_dir. Section 6.2: "CIFAR-100".'
    )
    alpha: float = place(
        0.1,
        'Of the Dirichlet distribution. Section 6.2: "Dirichlet distribution with alpha = 0.1".',
        gt=0,
        le=1e6,
    )

    models_path: Path = model(
        ROOT / "models", "Folder of checkpoints and tokenizers. The project's own.", aside=True
    )
    networks: dict[str, str] = model(
        {
            "server.images": "resnet-101",
            "server.texts": "bert",
            "images.images": "resnet-18",
            "texts.texts": "gru+pie",
            "pairs.images": "resnet-18+pie",
            "pairs.texts": "gru+pie",
        },
        'Network by "<party>.<modality>": one from scratch, or a checkpoint. Appendix M:'
        ' "ResNet-101 and BERT"; code: the clients\'.',
    )
    tokenizer: str = model(
        "google-bert/bert-base-uncased",
        "Folder below models_path: of networks for texts from scratch. Code: BERT's.",
    )
    dim: int = model(256, "d. Code: 256.", ge=1)
    image_size: int = model(
        224,
        "Side in pixels of images; a ViT's is its checkpoint's. Code: 224, and 256 for CIFAR-100.",
        ge=32,
    )
    text_length: int = model(64, "Tokens after which a text is cut. The project's own.", ge=4)

    server_lr: float = training(
        1e-5, "Of the server's Adam, falling by a cosine over the rounds. Code: 1e-5, AdamP.", gt=0
    )
    pairs_lr: float = training(
        2e-4, "Of Adam of clients with pairs, constant. Code: 2e-4, AdamP.", gt=0
    )
    labelled_lr: float = training(
        1e-4, "Of the optimiser of clients with labels. Code: 1e-4.", gt=0
    )
    labelled_optimiser: Literal["sgd", "adam"] = training(
        "sgd", "Of clients with labels. Code: SGD, momentum 0.9, weight decay 5e-5."
    )
    drops: tuple[int, ...] = training(
        (15, 24),
        "Rounds from which the rate of clients with labels is a tenth, each. Code: 15 and 24.",
    )
    local_epochs: int = training(
        5, "Of a participant, each with a pass over the public pairs. Code: 5.", ge=1
    )
    labelled_batch: int = training(
        512, "Samples in a step of clients with labels on their own data. Code: 512.", ge=2
    )
    batch_size: int = training(128, "Samples in every other step. Code: 128.", ge=2)

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        algorithms.get(self.algorithm)
        check_options(self.options, algorithms)
        for name in self.clients:
            check_known("clients: unknown kind", name, KINDS)
        for name in self.networks:
            check_known("networks: no party has", name, type(self).model_fields["networks"].default)
        if self.participants > sum(self.clients.values()):
            raise ValueError(
                f"participants: {self.participants} of {sum(self.clients.values())} clients"
            )
        return self

    @property
    def kinds(self) -> list[str]:
        """Kinds of which there are clients, in the order in which clients are numbered."""
        return [name for name in KINDS if self.clients[name]]
