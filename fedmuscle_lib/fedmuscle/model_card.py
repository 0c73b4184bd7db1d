"""The model card of a saved user."""

from __future__ import annotations

from typing import Any

from huggingface_hub import ModelCard, ModelCardData

from fedmuscle_lib.tasks import Task


def card(about: dict[str, Any], task: Task, adapted: bool) -> ModelCard:
    """What the user is, how good it is, how it is used, and how it was made.

    Args:
        about: the content of ``user.json`` (``fedmuscle_lib.fedmuscle.export``).
        task: the user's.
        adapted: whether it has an adapter.
    """
    data = ModelCardData(
        library_name="peft", base_model=about["backbone"]["name"], tags=["fedmuscle", "lora"]
    )
    return ModelCard.from_template(
        data,
        template_str=_CARD,
        about=about,
        task=task,
        settings=about["run"]["settings"],
        adapted=adapted,
    )


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
