"""Trained users as folders that one can take home: an adapter that peft reads, a head, and a card
that says what they are.

A user's folder holds:

- ``adapter_config.json``, ``adapter_model.safetensors``: LoRA, by peft's ``save_pretrained``; not
  there where nothing was adapted
- ``head.safetensors``: the projection to d and the task's head
- ``preprocessor_config.json``, or the tokenizer: how inputs are read
- ``user.json``: the task, its classes, the backbone's name and digest, the run, and a SHA-256 of
  each file above
- ``README.md``: the card
"""

from __future__ import annotations

import copy
import json
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import torch
from peft import PeftModel
from safetensors.torch import save_file
from torch import Tensor, nn

from fedmuscle_lib.core import ownership
from fedmuscle_lib.core.errors import DataError, shown, unreadable
from fedmuscle_lib.core.files import ROOT, digest, named, read_json, user_path
from fedmuscle_lib.core.tensors import like, load_tensors
from fedmuscle_lib.core.torch_state import fixed_state
from fedmuscle_lib.data.client_files import text_fault
from fedmuscle_lib.data.encodings import Encoding, Pixels, Tokens
from fedmuscle_lib.fedmuscle.build import encoding_of, has_one_side, model_options
from fedmuscle_lib.fedmuscle.client import REFERENCE_BATCH, Client
from fedmuscle_lib.fedmuscle.dependencies import checkpoint_of
from fedmuscle_lib.fedmuscle.model_card import card
from fedmuscle_lib.fedmuscle.profiles import PROFILES
from fedmuscle_lib.fedmuscle.rounds import Rounds
from fedmuscle_lib.fedmuscle.settings import Settings
from fedmuscle_lib.fedmuscle.setups import User, task_of
from fedmuscle_lib.models import (
    FrozenStates,
    UserModel,
    architecture_of,
    checkpoint_digest,
    checkpoint_folder,
    image_side,
    load_backbone,
    load_tokenizer,
    model_type,
)
from fedmuscle_lib.models.processor import image_processor
from fedmuscle_lib.runs.address import address_of
from fedmuscle_lib.runs.settings import try_device
from fedmuscle_lib.tasks import TASKS, SingleLabelClassification, Task

ABOUT, CARD, HEAD, ADAPTER = (
    "user.json",
    "README.md",
    "head.safetensors",
    "adapter_model.safetensors",
)
_READ = {
    ".json",
    ".txt",
    ".model",
    ".jinja",
    ".py",
    ".safetensors",
}  # kinds of files that readers of tokenizers and weights look for
# side of images, length of texts, and what sizes the model's tensors, unless the saved ones are
# larger
_LARGEST = 4096
_PEFTS = "base_model.model."  # before the names of a backbone's weights in peft's files


# --- writing


def save(rounds: Rounds, folder: Path) -> None:
    """Write ``user_<number>`` below ``folder`` for each user, as it is after the last round.

    Users who were saved there before are replaced, and what somebody else put beside them stays.

    Raises:
        NotOurs: something else lies in a user's place.
        OSError: a folder can't be written.
    """
    earlier = claimed(rounds.settings, folder)
    folder.mkdir(parents=True, exist_ok=True)
    for place, names in earlier.items():
        ownership.sweep(folder, place.name)
        with ownership.scratch(folder, place.name) as new:
            _save(
                next(
                    client
                    for client in rounds.federation.clients
                    if _place(folder, client.user) == place
                ),
                rounds,
                new,
            )
            ownership.exchange(new, place, names, last=ABOUT)


def claimed(settings: Settings, folder: Path) -> dict[Path, set[str]]:
    """Return, for each user's place below ``folder``, the files of a user who was saved there
    before and which may be replaced.

    Raises:
        NotOurs: something else lies there, or a file that was changed since.
    """
    return {
        place: _saved(place, folder)
        for place in (_place(folder, user) for user in settings.members)
    }


def _place(folder: Path, user: User) -> Path:
    return folder / f"user_{user.number}"


def _saved(place: Path, folder: Path) -> set[str]:
    ownership.reach(place, folder)
    try:
        about = read_json(place / ABOUT)
        digests = {name: [was] for name, was in (about["files"] | {CARD: about["card"]}).items()}
    except (DataError, KeyError, TypeError):  # nobody was saved there, or what says so is damaged
        ownership.vacant(place, folder)
        return set()
    ours = ownership.fitting(place, digests)
    if changed := sorted(name for name in digests if name not in ours and (place / name).exists()):
        raise ownership.NotOurs(
            f"{place / changed[0]}: changed since it was saved with the user; move {place} away, or"
            " name another folder"
        )
    return ours | {ABOUT}


def _save(client: Client, rounds: Rounds, folder: Path) -> None:
    user, model, settings = client.user, client.model, rounds.settings
    checkpoint, encoding = (
        checkpoint_of(settings, user),
        encoding_of(settings, user, model.backbone),
    )
    written = {HEAD}
    with named(folder / HEAD):
        save_file(
            {name: tensor.contiguous() for name, tensor in _of_head(model).items()}, folder / HEAD
        )
    if adapter := _of_adapter(model):
        _save_adapter(model, checkpoint, settings.backbones[user.model], adapter, folder)
        written |= {ADAPTER, "adapter_config.json"}
    if isinstance(encoding, Tokens):
        written |= {
            Path(path).name
            for path in encoding.tokenizer.save_pretrained(folder)
            if Path(path).is_file()
        }
        reads = {"longest": encoding.longest}
    else:
        assert isinstance(encoding, Pixels)
        name = "preprocessor_config.json"
        (folder / name).write_text(
            json.dumps(image_processor(model_type(checkpoint), encoding.size), indent=2) + "\n",
            encoding="utf8",
        )
        written.add(name)
        reads = {"size": encoding.size}
    # the control ``probe`` puts a head in the place of the one that its settings ask for
    head = {"head": "linear", "head_on": model.head_on} if isinstance(model.head, nn.Linear) else {}
    about = {
        "user": user.number,
        "model": user.model,
        "task": user.task,
        "client": user.client,
        "own": {"folder": user.folder and Path(user.folder).name, "classes": user.classes},
        "classes": client.classes,
        "reads": reads,
        "backbone": {
            "name": settings.backbones[user.model],
            "digest": checkpoint_digest(checkpoint),
        },
        "options": model_options(settings, user) | head,
        "frozen": not any(
            parameter.requires_grad for parameter in model.representation_parameters()
        ),
        "metrics": [
            row
            for row in rounds.rows["metrics"]
            if row["user"] == user.number and row["round"] == settings.rounds
        ],
        "run": {"address": str(address_of(settings)), "settings": _recorded(settings)},
        "files": {name: digest(folder / name) for name in sorted(written)},
    }
    (folder / CARD).write_text(card(about, _task(about)), encoding="utf8")
    about["card"] = digest(folder / CARD)  # which may be edited, unlike the others
    (folder / ABOUT).write_text(json.dumps(about, indent=2) + "\n", encoding="utf8")


def _recorded(settings: Settings) -> dict[str, Any]:
    """The settings without places: users' own folders have their names alone."""
    own = {
        number: data.model_copy(update={"folder": Path(data.folder).name})
        for number, data in settings.own.items()
    }
    return settings.model_copy(update={"own": own}).recorded()


def _save_adapter(
    model: UserModel, checkpoint: Path, name: str, adapter: dict[str, Tensor], folder: Path
) -> None:
    """peft's two files.

    The run's own backbone has its LoRA injected, which peft can't save; a fresh one of the same
    config can.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # peft's call of what transformers renames
        adapted = PeftModel(
            load_backbone(checkpoint), copy.deepcopy(model.backbone.peft_config["default"])
        )
    adapted.peft_config["default"].base_model_name_or_path = name
    tensors = {
        f"{_PEFTS}{name.removeprefix('backbone.')}": tensor for name, tensor in adapter.items()
    }
    with named(folder / ADAPTER):
        adapted.save_pretrained(str(folder), state_dict=tensors, save_embedding_layers=False)


def _of_adapter(model: UserModel) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in model.state_dict().items() if ".lora_" in name}


def _of_head(model: UserModel) -> dict[str, Tensor]:
    """Projection and head, with the head's buffers."""
    return {
        name: tensor
        for name, tensor in model.state_dict().items()
        if name.startswith(("projection.", "head."))
    }


# --- reading


@dataclass(frozen=True)
class SavedUser:
    """A user as it was at the end of its run.

    Attributes:
        number: the user's, from 1.
        task: what it learnt.
        classes: ids of its classes, in the order of the outputs (segmentation has the background
            before them).
        model: theta^n, in evaluation mode.
        encoding: how it reads inputs.
        about: what ``user.json`` says: metrics, the run's address and settings, the backbone's name
            and digest.
        device: where it is.
    """

    number: int
    task: Task
    classes: tuple[int, ...]
    model: UserModel
    encoding: Encoding
    about: dict[str, Any]
    device: str

    def predict(self, inputs: Tensor | Sequence[str] | Sequence[Path]) -> Tensor:
        """The head's outputs: (n, classes), (n, 1 + classes, h / 4, w / 4) of a decoder, (n, l,
        vocabulary) of a language model.

        They are the numbers from which the run computed its metric: equal to the bit for the same
            inputs on the same machine, device and
        number of torch threads. The samples pass in the evaluation's own batches, because another
        batch may round otherwise.

        Args:
            inputs: images, (n, 3, h, w) uint8, of any size, or paths of image files; texts, or (n,
                l) token ids.

        Raises:
            ValueError: inputs of another kind, none, empty ones, or token ids that the model does
                not have or as many as it can't read.
            DataError: a file is missing or no image; the message names it.
        """
        return self._pass(inputs, self.task.evaluation_batch, self.model)

    def represent(self, inputs: Tensor | Sequence[str] | Sequence[Path]) -> Tensor:
        """Z, (n, d), with rows of unit norm; inputs and what is equal as for :meth:`predict`, in
        the batches of a whole public set.
        """
        return self._pass(inputs, REFERENCE_BATCH, self.model.represent)

    @fixed_state()
    @torch.no_grad()
    def _pass(self, inputs: Any, batch: int, call: Any) -> Tensor:
        encoded = self.encode(inputs).to(self.device)
        read = FrozenStates().of(self.model, encoded)
        return torch.cat(
            [call(read.take(rows)) for rows in torch.arange(len(encoded)).split(batch)]
        )

    def encode(self, inputs: Tensor | Sequence[str] | Sequence[Path]) -> Tensor:
        """Return the inputs as the model reads them; they are as for :meth:`predict`.

        Raises:
            ValueError, DataError: as :meth:`predict`.
        """
        if isinstance(inputs, str | Path):
            raise ValueError(f"user {self.number}: {inputs!r} is one input; give a list of them")
        if not isinstance(inputs, Tensor):
            return self._encode_listed(inputs)
        if isinstance(self.encoding, Pixels):
            if (
                inputs.dtype != torch.uint8
                or inputs.ndim != 4
                or inputs.shape[1] != 3
                or not inputs.numel()
            ):
                raise ValueError(
                    f"user {self.number} reads images, (n, 3, h, w) uint8, got"
                    f" {tuple(inputs.shape)} {inputs.dtype}"
                )
            return self.encoding.resize(inputs)
        if inputs.dtype != torch.int64 or inputs.ndim != 2 or not inputs.numel():
            raise ValueError(
                f"user {self.number} reads texts or token ids, (n, l) int64, got"
                f" {tuple(inputs.shape)} {inputs.dtype}"
            )
        config = self.model.backbone.config
        least, largest = inputs.min().item(), inputs.max().item()
        if least < 0 or largest >= config.vocab_size:
            raise ValueError(
                f"user {self.number} reads token ids from 0 to {config.vocab_size - 1}, got {least}"
                f" to {largest}"
            )
        if inputs.shape[1] > config.max_position_embeddings:
            raise ValueError(
                f"user {self.number} reads at most {config.max_position_embeddings} tokens a text,"
                f" got {inputs.shape[1]}"
            )
        return inputs

    def _encode_listed(self, inputs: Any) -> Tensor:
        """Texts, or paths of image files."""
        images = isinstance(self.encoding, Pixels)
        reads = (
            "paths of image files, or a tensor (n, 3, h, w) uint8"
            if images
            else "texts, or a tensor of token ids (n, l) int64"
        )
        try:
            given = list(inputs)
        except TypeError:
            raise ValueError(
                f"user {self.number} reads {reads}, got a {type(inputs).__name__}"
            ) from None
        if not given:
            raise ValueError(f"user {self.number}: no inputs")
        for row, one in enumerate(given):
            if not isinstance(one, str | Path if images else str):
                raise ValueError(
                    f"user {self.number} reads {reads}, got a {type(one).__name__} (input {row})"
                )
            if not images and (fault := text_fault(one)):
                raise ValueError(f"user {self.number}: input {row} {fault}")
        return (
            self.encoding.load([Path(path) for path in given])
            if isinstance(self.encoding, Pixels)
            else self.encoding.encode(given)
        )


@fixed_state()
def load_user(
    folder: str | Path, backbone: str | Path | None = None, device: str = "cpu"
) -> SavedUser:
    """A user as it was at the end of its run.

    Args:
        folder: ``FOLDER/user_<number>`` of what ``run(..., save_models=FOLDER)`` wrote.
        backbone: folder of the checkpoint that the user was trained on; by default where its run's
            profile has it.
        device: where the user goes; "auto" for the best one.

    Raises:
        ValueError: torch can't compute on the device.
        DataError: the folder is no saved user's, a file of it is missing or damaged, or the
            backbone is another; the message names it.
        OSError: there is no checkpoint, or it can't be read; the message names it.
    """
    folder, device = user_path(folder, "folder"), try_device(device)
    about = _read_about(folder)
    with unreadable(
        f"{folder / ABOUT}: not a saved user", but=(DataError, OSError)
    ):  # whatever it asks for that there is not
        return _loaded(folder, about, backbone, device)


def _loaded(
    folder: Path, about: dict[str, Any], backbone: str | Path | None, device: str
) -> SavedUser:
    name, task = about["backbone"]["name"], _task(about)
    usual = PROFILES.get(about["run"]["settings"]["profile"], {}).get(
        "models_path", ROOT / "models"
    )
    checkpoint = (
        checkpoint_folder(usual, name) if backbone is None else user_path(backbone, "backbone")
    )
    kind = architecture_of(checkpoint)
    if (found := checkpoint_digest(checkpoint)) != about["backbone"]["digest"]:
        raise DataError(
            f"{folder}: trained on {name} with the digest {about['backbone']['digest'][:12]};"
            f" {checkpoint} has {found[:12]}"
        )
    classes, options = tuple(about["classes"]), about["options"]
    _check_told(about, task, kind)
    if not all(type(size) is int and 0 < size <= _LARGEST for size in about["reads"].values()):
        raise ValueError(f"it reads inputs of a size that is none of 1 to {_LARGEST}")
    tensors = _saved_tensors(folder, about["files"])
    widest = max(_LARGEST, *(side for tensor in tensors.values() for side in tensor.shape))
    sized = [
        name
        for name in ("rank", "proj_dim", "head_hidden")
        if name != "head_hidden" or options["head"] != "linear"
    ]
    if wrong := [
        name for name in sized if type(options[name]) is not int or not 0 < options[name] <= widest
    ]:
        raise ValueError(f"the option {wrong[0]} is {shown(options[wrong[0]])}")
    if not math.isfinite(options["lora_alpha"]):
        raise ValueError(f"the option lora_alpha is {options['lora_alpha']}")
    frozen = load_backbone(checkpoint, device)
    _check_files(folder, about, task, kind, frozen.config)
    model = kind(frozen, task.n_outputs(classes), **options)
    if about["frozen"]:
        model.freeze_representation()
    _restore(model, folder, tensors)
    encoding = (
        Tokens(load_tokenizer(folder, frozen), **about["reads"])
        if task.reads == "texts"
        else Pixels(**about["reads"])
    )
    return SavedUser(about["user"], task, classes, model.to(device).eval(), encoding, about, device)


def _check_told(about: dict[str, Any], task: Task, kind: type[UserModel]) -> None:
    """Raise ValueError if what user.json says contradicts itself, the task or the backbone's
    family.
    """
    classes, options, recorded = about["classes"], about["options"], about["run"]["settings"]
    for name, hint in get_type_hints(UserModel.__init__).items():
        if get_origin(hint) is Literal and options[name] not in get_args(hint):
            raise ValueError(f"the option {name} is {shown(options[name])}")
    for name in ("pooling", "pooled_stages", "precision", "lora_alpha"):
        if options[name] != recorded[name]:
            raise ValueError(
                f"the option {name} is {shown(options[name])}, in its run it was"
                f" {shown(recorded[name])}"
            )
    if kind.reads != task.reads:
        raise ValueError(
            f"the task {task.name} is on {task.reads}, the backbone reads {kind.reads}"
        )
    if (
        len(set(classes)) < len(classes)
        or isinstance(task, SingleLabelClassification)
        and classes != [*range(task.n_classes)]
    ):
        raise ValueError(f"the classes {shown(classes)} are none of {task.name}")
    if type(about["frozen"]) is not bool or type(about["user"]) is not int:
        raise ValueError(f"frozen is {shown(about['frozen'])}, user {shown(about['user'])}")


def _check_files(
    folder: Path, about: dict[str, Any], task: Task, kind: type[UserModel], config: Any
) -> None:
    """Raise ValueError if user.json contradicts the files beside it, or the backbone's config."""
    files, options, reads = about["files"], about["options"], about["reads"]
    if kind.reads == "texts":
        if reads["longest"] > config.max_position_embeddings:
            raise ValueError(
                f"it reads {reads['longest']} tokens, the backbone at most"
                f" {config.max_position_embeddings}"
            )
    else:
        side = reads["size"]
        processed = (
            read_json(folder / "preprocessor_config.json")["size"]
            if "preprocessor_config.json" in files
            else {}
        )
        if side != image_side(config) if has_one_side(kind, task) else side % (kind.stride or 1):
            raise ValueError(f"it reads images of {side} px, which the backbone does not")
        if any(other != side for other in processed.values()):
            raise ValueError(
                f"it reads images of {side} px, its preprocessor_config.json says"
                f" {shown(processed)}"
            )
    if ADAPTER in files:
        adapter = read_json(folder / "adapter_config.json")
        for name, other in (("rank", "r"), ("lora_alpha", "lora_alpha")):
            if adapter.get(other) != options[name]:
                raise ValueError(
                    f"the option {name} is {shown(options[name])}, its adapter_config.json says"
                    f" {shown(adapter.get(other))}"
                )


def _task(about: dict[str, Any]) -> Task:
    """The task of a saved user, on its own folder and classes if it had them."""
    return task_of(
        User(about["user"], about["model"], about["task"], about["client"], 0, **about["own"])
    )


def _read_about(folder: Path) -> dict[str, Any]:
    """``user.json``, once every file that it names is what it was when it was saved."""
    path = folder / ABOUT
    if not path.is_file():
        raise DataError(
            f"{path}: no such file; `python -m fedmuscle_lib run --save-models FOLDER` writes"
            " FOLDER/user_<number>"
        )
    about = read_json(path)
    files = about.get("files")
    if (
        not isinstance(files, dict)
        or HEAD not in files
        or not all(Path(name).name == name for name in files)
    ):
        raise DataError(
            f"{path}: not a saved user: its files are not those of a folder with {HEAD}"
        )
    read = {path.name for path in folder.iterdir() if path.suffix in _READ} - {ABOUT}
    if strangers := sorted(read - files.keys()):
        raise DataError(
            f"{folder / strangers[0]}: it was not saved with the user; take it out of the folder"
        )
    if not isinstance(about.get("task"), str) or about["task"] not in TASKS:
        raise DataError(f"{path}: the task {shown(about.get('task'))} is not known here")
    for name, was in files.items():
        if not (folder / name).is_file():
            raise DataError(f"{folder / name}: no such file, though it was saved with the user")
        if digest(folder / name) != was:
            raise DataError(
                f"{folder / name}: damaged or exchanged; it is not the file that was saved with the"
                " user"
            )
    return about


def _saved_tensors(folder: Path, files: dict[str, str]) -> dict[str, Tensor]:
    """Head and adapter, by the names that they have in the model."""
    tensors = load_tensors(folder / HEAD)[0]
    if ADAPTER in files:
        for name, tensor in load_tensors(folder / ADAPTER)[0].items():
            layer, matrix = name.removeprefix(_PEFTS).rsplit(".lora_", 1)
            tensors[f"backbone.{layer}.lora_{matrix.replace('.', '.default.', 1)}"] = tensor
    return tensors


def _restore(model: UserModel, folder: Path, tensors: dict[str, Tensor]) -> None:
    own = _of_head(model) | _of_adapter(model)
    for name in sorted(own.keys() ^ tensors.keys()) or [
        name for name in own if not like(tensors[name], own[name])
    ]:
        raise DataError(f"{folder}: {name!r} is not what {ABOUT} asks for")
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(tensors[name])
