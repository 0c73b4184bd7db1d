"""The original code's flags, which its README lists, in terms of ours.

Its names of our settings stand in the settings' fields.
"""

from __future__ import annotations

from typing import Any

from fedmuscle_lib.fedmuscle.settings import Settings
from fedmuscle_lib.fedmuscle.setups import SETUPS

# Their algorithms and public sets that are called otherwise here.
_VALUES = {
    "local_training": "local",
    "pascal": "voc",
    "flicker_multi_modal": "flickr30k",
}
_COUNTS = {f"num_{task}_clients": task for task in ("MLC", "IC100", "IC10", "SS", "TG")}
_COUNTS["num_yahoo_topic_classification_clients"] = "TC"
_COUNTED = "The first K users with {}; of a task without a count nobody takes part."
# Their flags that are no settings.
FLAGS: dict[str, tuple[type, str]] = {
    **{name: (int, _COUNTED.format(task)) for name, task in _COUNTS.items()},
    "adapter_method": (str, "lora, which is all that there is."),
}


def translated(given: dict[str, Any]) -> dict[str, Any]:
    """Replace flags that are no settings by the settings that they mean, and fill in what the
    original commands leave out.

    Raises:
        ValueError: another adapter than LoRA, more users of a task than there are, or users beside
            counts.
    """
    values = {name: value for name, value in given.items() if name not in FLAGS}
    if "public" in values:  # their README has capitals
        values["public"] = values["public"].lower()
    for name in {"algorithm", "public"} & values.keys():
        values[name] = _VALUES.get(values[name], values[name])
    if (method := given.get("adapter_method", "lora")) != "lora":
        raise ValueError(f"adapter_method: only lora is known, not {method!r}")
    if values.get("public") == "flickr30k":
        values.setdefault("setup", "setup2")  # the original command names none
    counts = {task: given[name] for name, task in _COUNTS.items() if name in given}
    if not counts:
        return values
    if "users" in given:
        raise ValueError("users: --num_..._clients say who takes part too; give one of them")
    setup = SETUPS.get(values.get("setup", Settings.model_fields["setup"].default), ())
    users: list[int] = []
    for task, count in counts.items():
        numbers = [user.number for user in setup if user.task == task]
        if not 0 <= count <= len(numbers):
            raise ValueError(
                f"--num_..._clients: there are {len(numbers)} users with {task}, not {count}"
            )
        users += numbers[:count]
    return values | {"users": tuple(sorted(users))}
