"""The model card of a saved user."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedmuscle_lib.tasks import Task


def card(about: dict[str, Any], task: Task) -> str:
    """Markdown that Hugging Face's hub reads too: what the user is, how good it is, how it is used,
    and how it was made.

    Args:
        about: the content of ``user.json`` (``fedmuscle_lib.fedmuscle.export``).
        task: the user's.
    """
    settings, backbone = about["run"]["settings"], about["backbone"]
    values = "\n".join(
        f"| {row['phase'].replace('_', ' ')} | {row['metric']} | {row['value']:.2f} |"
        for row in about["metrics"]
    )
    others = "\n".join(f"| `{name}` | `{value}` |" for name, value in settings.items())
    return _CARD.format(
        base=backbone["name"],
        digest=backbone["digest"],
        title=f"user {about['user']}: {about['model']} for {about['task']}",
        **{name: settings[name] for name in ("algorithm", "public", "profile", "seed", "rounds")},
        evaluated=settings["evaluate_on"],
        classes=_classes(about["classes"]),
        data=f"{task.folder}/train/client_{about['client']}{task.suffix}",
        metric=task.metric,
        values=values,
        settings=others,
        address=about["run"]["address"],
        refit=_REFIT if settings["refit"] else "",
        adapter=_ADAPTER if "adapter_config.json" in about["files"] else "",
    )


def _classes(ids: Sequence[int]) -> str:
    """A line on the classes, in the order of the outputs; empty for a task without classes."""
    if not ids:
        return ""
    first, last = ids[0], ids[-1]
    which = (
        f"{first} to {last}"
        if list(ids) == list(range(first, last + 1))
        else ", ".join(map(str, ids))
    )
    return f"- classes: {len(ids)} ({which})\n"


_REFIT = (
    "\nThese are of a copy that trained for one more local phase (setting `refit`). The saved model"
    " is the one before it.\n"
)
_ADAPTER = """
The LoRA adapter alone, without projection and head:

```python
from peft import PeftModel

adapted = PeftModel.from_pretrained(backbone, "FOLDER")
```
"""
_CARD = """---
library_name: peft
base_model: {base}
tags: [fedmuscle, lora]
---
# {title}

A user of a federation (FedMuscle's system, algorithm `{algorithm}`, public set `{public}`,
profile `{profile}`, seed {seed}) after {rounds} rounds: a LoRA adapter, a projection to the
common space, and a head.

- backbone: `{base}`, digest `{digest}`
{classes}- local data: `{data}`
- run: `{address}`

| evaluated | metric | {evaluated} |
|---|---|---|
{values}
{refit}
## Use

```python
from fedmuscle_lib import load_user

user = load_user("FOLDER")
outputs = user.predict(inputs)    # images (n, 3, h, w) uint8 or paths; texts or token ids
z = user.represent(inputs)        # (n, d), rows of unit norm
```
{adapter}
## Settings

| setting | value |
|---|---|
{settings}
"""
