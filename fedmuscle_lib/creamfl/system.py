"""CreamFL's system: what runs ask of it (see ``fedmuscle_lib.runs.system``)."""

from __future__ import annotations

from typing import Any

import pandas as pd

from fedmuscle_lib.creamfl import algorithms
from fedmuscle_lib.creamfl.kinds import KINDS, folders
from fedmuscle_lib.creamfl.networks import PIE, SCRATCH
from fedmuscle_lib.creamfl.rounds import Rounds
from fedmuscle_lib.creamfl.settings import Settings
from fedmuscle_lib.models import checkpoint_digest, checkpoint_folder
from fedmuscle_lib.runs.address import files_digest
from fedmuscle_lib.runs.system import Experiment, System, key_of

# version of what every run of this system computes by: data, draws, networks, parties, losses,
# retrieval
CORE = 1
# settings that are gone, at the value of all stored runs, whose addresses hold them
GONE = {
    "label_order": 0,
    "server_training_mode": 0,
    "augmented_public": 0,
    "rank": 16,
    "lora_blocks": "last",
    "folds": 5,
    "texts_folder": "TC/ag_news",
}


class _CreamFL(System[Settings]):
    name, settings = "creamfl", Settings
    # metrics: recall in per cent after an evaluated round, by gallery ("whole", or "fold": the mean
    # over folds), and chance. costs, losses: a row for the server and each participant; party is
    # "server" or a client's number. flops are those of training, every call through the whole
    # network. losses: local is the mean over the last pass over own data (the server's are the
    # public pairs), public over the last pass towards others' embeddings; NaN where there was none.
    tables = {
        "metrics": {
            "round": int,
            "gallery": str,
            "direction": str,
            "k": int,
            "value": float,
            "chance": float,
        },
        "costs": {
            "round": int,
            "party": str,
            "kind": str,
            "uplink_bytes": int,
            "downlink_bytes": int,
            "flops": int,
        },
        "losses": {"round": int, "party": str, "local": float, "public": float},
        "measures": {"round": int, "party": str, "measure": str, "value": float},
    }

    def key(self, settings: Settings) -> dict[str, Any]:
        kinds = [KINDS[name] for name in settings.kinds]
        key = key_of(settings, CORE, algorithms.get(settings.algorithm), *kinds)
        return key | {"settings": key["settings"] | GONE}

    def inputs(self, settings: Settings) -> dict[str, str]:
        found = {folder: files_digest(settings.data_dir / folder) for folder in folders(settings)}
        for name in sorted({settings.tokenizer, *settings.networks.values()}):
            if name.removesuffix(PIE) not in SCRATCH:
                found[f"checkpoint {name}"] = checkpoint_digest(
                    checkpoint_folder(settings.models_path, name), ("*.json", "*.safetensors")
                )
        return found

    def begin(self, settings: Settings) -> Experiment:
        return Rounds(settings)

    def per_sample(self, settings: Settings, metrics: pd.DataFrame) -> pd.Series:
        return 0 * metrics.value + 100 / settings.test_size


SYSTEM = _CreamFL()
