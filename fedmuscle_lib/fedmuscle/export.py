"""Trained users as folders that one can take home: an adapter that peft reads, a head, and a card
that says what they are.

A user's folder holds:

- ``adapter_config.json``, ``adapter_model.safetensors``: LoRA, as peft writes it; not there where
  nothing was adapted
- ``head.safetensors``: the projection to d and the task's head
- ``user.json``: the task, its classes, the backbone's name and digest, and the run
- ``README.md``: the card
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from huggingface_hub import ModelCard, ModelCardData
from peft import get_peft_model_state_dict, set_peft_model_state_dict
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from fedmuscle_lib.core.errors import DataError, unreadable
from fedmuscle_lib.core.files import ROOT, read_json, user_path
from fedmuscle_lib.core.ownership import refuse_others
from fedmuscle_lib.core.tensors import load_tensors
from fedmuscle_lib.core.torch_state import fixed_state
from fedmuscle_lib.core.training import put_weights
from fedmuscle_lib.data.encodings import Encoding, Pixels, Tokens
from fedmuscle_lib.fedmuscle.build import checkpoint_of, encoding_of, model_options
from fedmuscle_lib.fedmuscle.client import REFERENCE_BATCH, Client
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
    load_backbone,
    load_tokenizer,
)
from fedmuscle_lib.runs.address import address_of
from fedmuscle_lib.runs.settings import try_device
from fedmuscle_lib.tasks import Task

ABOUT, HEAD = "user.json", "head.safetensors"
ADAPTER = ("adapter_config.json", "adapter_model.safetensors")  # peft's names

Inputs = Tensor | Sequence[str] | Sequence[Path]


# --- writing


def save(rounds: Rounds, folder: Path) -> None:
    """Write ``user_<number>`` below ``folder`` for each user, as it is after the last round.

    Users who were saved there before are replaced, and what somebody else put beside them stays.

    Raises:
        NotOurs: something else lies in a user's place.
        OSError: a folder can't be written.
    """
    claim(rounds.settings, folder)
    for client in rounds.federation.clients:
        place = _place(folder, client.user)
        with TemporaryDirectory(dir=folder) as new:
            _save(client, rounds, Path(new))
            for name in ADAPTER:  # the user who is replaced may have had one
                (place / name).unlink(missing_ok=True)
            for path in Path(new).iterdir():
                os.replace(path, place / path.name)


def claim(settings: Settings, folder: Path) -> None:
    """Make each user's place below ``folder``, unless a user who was saved before is there.

    Raises:
        NotOurs: something else lies there.
    """
    for user in settings.members:
        place = _place(folder, user)
        refuse_others(place, ours=(place / ABOUT).is_file())
        place.mkdir(parents=True, exist_ok=True)


def _place(folder: Path, user: User) -> Path:
    return folder / f"user_{user.number}"


def _save(client: Client, rounds: Rounds, folder: Path) -> None:
    user, model, settings = client.user, client.model, rounds.settings
    name, checkpoint = settings.backbones[user.model], checkpoint_of(settings, user)
    encoding: Any = encoding_of(settings, user, model.backbone)
    # safetensors' own writer makes files that nobody else may read
    (folder / HEAD).write_bytes(to_bytes(_of_head(model)))
    if _is_adapted(model):
        config = copy.copy(model.backbone.peft_config["default"])
        config.base_model_name_or_path, config.inference_mode = name, True
        config.save_pretrained(folder)
        adapter = get_peft_model_state_dict(model.backbone, save_embedding_layers=False)
        named = {f"base_model.model.{key}": adapter[key] for key in adapter}
        (folder / ADAPTER[1]).write_bytes(to_bytes(named))
    # the control ``probe`` puts a head in the place of the one that its settings ask for
    head = {"head": "linear", "head_on": model.head_on} if isinstance(model.head, nn.Linear) else {}
    recorded = settings.recorded()
    for data in recorded["own"].values():  # its name, and not where it lies
        data["folder"] = Path(data["folder"]).name
    about = {
        "user": user.number,
        "model": user.model,
        "task": user.task,
        "client": user.client,
        "own": {"folder": user.folder and Path(user.folder).name, "classes": user.classes},
        "classes": client.classes,
        "reads": encoding.longest if isinstance(encoding, Tokens) else encoding.size,
        "backbone": {"name": name, "digest": checkpoint_digest(checkpoint)},
        "options": model_options(settings, user) | head,
        "frozen": not any(p.requires_grad for p in model.representation_parameters()),
        "metrics": [
            row
            for row in rounds.rows["metrics"]
            if (row["user"], row["round"]) == (user.number, settings.rounds)
        ],
        "run": {"address": str(address_of(settings)), "settings": recorded},
    }
    (folder / ABOUT).write_text(json.dumps(about, indent=2) + "\n", encoding="utf8")
    data = ModelCardData(library_name="peft", base_model=name, tags=["fedmuscle", "lora"])
    card: dict[str, Any] = {
        "task": _task(about),
        "adapted": _is_adapted(model),
        "settings": recorded,
    }
    ModelCard.from_template(data, template_str=_CARD, about=about, **card).save(
        folder / "README.md"
    )


def _is_adapted(model: UserModel) -> bool:
    return hasattr(model.backbone, "peft_config")


def _of_head(model: UserModel) -> dict[str, Tensor]:
    """Projection and head, with the head's buffers."""
    return {
        name: tensor.contiguous()
        for name, tensor in model.state_dict().items()
        if name.startswith(("projection.", "head."))
    }


_CARD = """---
{{ card_data }}
---

# user {{ about.user }}: {{ about.model }} for {{ about.task }}

A user of a federation (FedMuscle's system, algorithm `{{ settings.algorithm }}`, public set
`{{ settings.public }}`, profile `{{ settings.profile }}`, seed {{ settings.seed }}) after
{{ settings.rounds }} rounds: a LoRA adapter, a projection to the common space, and a head.

- backbone: `{{ about.backbone.name }}`, digest `{{ about.backbone.digest }}`
{%- if about.classes %}
- classes: {{ about.classes | length }}
{%- endif %}
- local data: `{{ task.folder }}/train/client_{{ about.client }}{{ task.suffix }}`
- run: `{{ about.run.address }}`

| evaluated | metric | {{ settings.evaluate_on }} |
|---|---|---|
{%- for row in about.metrics %}
| {{ row.phase.replace("_", " ") }} | {{ row.metric }} | {{ "%.2f" | format(row.value) }} |
{%- endfor %}
{% if settings.refit %}
These are of a copy that trained for one more local phase (setting `refit`). The saved model
is the one before it.
{% endif %}
## Use

```python
from fedmuscle_lib import load_user

user = load_user("FOLDER")
outputs = user.predict(inputs)    # images (n, 3, h, w) uint8 or paths; texts or token ids
z = user.represent(inputs)        # (n, d), rows of unit norm
```
{% if adapted %}
The LoRA adapter alone, without projection and head:

```python
from peft import PeftModel

adapted = PeftModel.from_pretrained(backbone, "FOLDER")
```
{% endif %}
## Settings

| setting | value |
|---|---|
{%- for name, value in settings.items() %}
| `{{ name }}` | `{{ value }}` |
{%- endfor %}
"""


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

    def predict(self, inputs: Inputs) -> Tensor:
        """The head's outputs: (n, classes), (n, 1 + classes, h / 4, w / 4) of a decoder, (n, l,
        vocabulary) of a language model.

        They are the numbers from which the run computed its metric: equal to the bit for the same
        inputs on the same machine, device and number of torch threads. The samples pass in the
        evaluation's own batches, because another batch may round otherwise.

        Args:
            inputs: images, (n, 3, h, w) uint8, of any size, or paths of image files; texts, or (n,
                l) token ids.

        Raises:
            ValueError: inputs of another kind, or none.
            DataError: a file is missing or no image; the message names it.
        """
        return self._pass(inputs, self.task.evaluation_batch, self.model)

    def represent(self, inputs: Inputs) -> Tensor:
        """Z, (n, d), with rows of unit norm; inputs and what is equal as for :meth:`predict`, in
        the batches of a whole public set.
        """
        return self._pass(inputs, REFERENCE_BATCH, self.model.represent)

    @fixed_state()
    @torch.no_grad()
    def _pass(self, inputs: Inputs, batch: int, call: Any) -> Tensor:
        encoded = self.encode(inputs).to(self.device)
        read = FrozenStates().of(self.model, encoded)
        return torch.cat(
            [call(read.take(rows)) for rows in torch.arange(len(encoded)).split(batch)]
        )

    def encode(self, inputs: Inputs) -> Tensor:
        """Return the inputs as the model reads them; they are as for :meth:`predict`.

        Raises:
            ValueError, DataError: as :meth:`predict`.
        """
        encoding = self.encoding
        images = isinstance(encoding, Pixels)
        fits = isinstance(inputs, list | tuple)
        if isinstance(inputs, Tensor):
            fits = (inputs.ndim, inputs.dtype) == ((4, torch.uint8) if images else (2, torch.int64))
        if not fits or not len(inputs):
            raise ValueError(
                f"user {self.number} reads {'images' if images else 'texts'}: images (n, 3, h, w)"
                " uint8 or a list of files, or a list of texts or token ids (n, l) int64; got a"
                f" {type(inputs).__name__}"
            )
        if isinstance(encoding, Pixels):
            if isinstance(inputs, Tensor):
                return encoding.resize(inputs)
            return encoding.load(list(map(Path, inputs)))
        return inputs if isinstance(inputs, Tensor) else encoding.encode(list(map(str, inputs)))


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
    about = read_json(folder / ABOUT)
    with unreadable(f"{folder / ABOUT}: not a saved user", but=(DataError, OSError)):
        return _loaded(folder, about, backbone, device)


def _loaded(
    folder: Path, about: dict[str, Any], backbone: str | Path | None, device: str
) -> SavedUser:
    name, wanted = about["backbone"]["name"], about["backbone"]["digest"]
    if backbone is None:
        usual = PROFILES[about["run"]["settings"]["profile"]].get("models_path", ROOT / "models")
        checkpoint = checkpoint_folder(usual, name)
    else:
        checkpoint = user_path(backbone, "backbone")
    kind = architecture_of(checkpoint)
    if (found := checkpoint_digest(checkpoint)) != wanted:
        raise DataError(
            f"{folder}: trained on {name} with the digest {wanted[:12]}; {checkpoint} has"
            f" {found[:12]}"
        )
    task, classes = _task(about), tuple(about["classes"])
    frozen = load_backbone(checkpoint, device)
    model = kind(frozen, task.n_outputs(classes), **about["options"])
    if about["frozen"]:
        model.freeze_representation()
    _restore(model, folder)
    texts, size = task.reads == "texts", about["reads"]
    encoding = Tokens(load_tokenizer(checkpoint), size) if texts else Pixels(size)
    return SavedUser(about["user"], task, classes, model.to(device).eval(), encoding, about, device)


def _task(about: dict[str, Any]) -> Task:
    """The task of a saved user, on its own folder and classes if it had them."""
    return task_of(
        User(about["user"], about["model"], about["task"], about["client"], 0, **about["own"])
    )


def _restore(model: UserModel, folder: Path) -> None:
    """Put the saved head and adapter into the model.

    Raises:
        DataError: naming a file that is missing or damaged.
        ValueError: a file is another model's.
    """
    put_weights("the head", model, _of_head(model), load_tensors(folder / HEAD)[0])
    if _is_adapted(model):
        adapter = load_tensors(folder / ADAPTER[1])[0]
        found: Any = set_peft_model_state_dict(model.backbone, adapter)
        if found.unexpected_keys or any(".lora_" in name for name in found.missing_keys):
            raise DataError(f"{folder / ADAPTER[1]}: not the adapter of this model")
