"""The original code's flags, which its README lists, in terms of ours."""

from __future__ import annotations

from typing import Any

from fedmuscle_lib.fedmuscle.settings import Settings
from fedmuscle_lib.fedmuscle.setups import SETUPS

# Their values of a setting where ours are called differently.
VALUES = {
    "algorithm": {"local_training": "local"},
    "public": {
        "pascal": "voc",
        "CIFAR100": "cifar100",
        "CIFAR10": "cifar10",
        "flicker_multi_modal": "flickr30k",
    },
}
# Their name of an option that is called otherwise here; those of settings stand in the settings'
# fields.
NAMES = {"num_TC_clients": "num_yahoo_topic_classification_clients"}
_COUNTS = {f"num_{task}_clients": task for task in ("MLC", "IC100", "IC10", "SS", "TC", "TG")}
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
    if (method := given.get("adapter_method", "lora")) != "lora":
        raise ValueError(f"adapter_method: only lora is known, not {method!r}")
    if values.get("public") == "flickr30k":
        values.setdefault("setup", "setup2")  # the original command names none
    counts = {name: given[name] for name in _COUNTS if name in given}
    if not counts:
        return values
    if "users" in given:
        raise ValueError("users: --num_..._clients say who takes part too; give one of them")
    setup = SETUPS.get(values.get("setup", Settings.model_fields["setup"].default), ())
    users: list[int] = []
    for name, count in counts.items():
        numbers = [user.number for user in setup if user.task == _COUNTS[name]]
        if not 0 <= count <= len(numbers):
            raise ValueError(
                f"{name}: there are {len(numbers)} users with {_COUNTS[name]}, not {count}"
            )
        users += numbers[:count]
    return values | {"users": tuple(sorted(users))}
