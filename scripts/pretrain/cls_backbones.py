"""Train the embedded world's ViTs on with the CLS token as their feature: ten minutes each.

    python scripts/pretrain/cls_backbones.py vit-tiny --out FOLDER

Hugging Face's ViT classifiers read the CLS token, and the shipped ViTs learnt with the mean over
patches. This starts from their shipped weights and repeats their two phases of contrast, with the
CLS token in the mean's place and the same seeds. ``data_prep/weights/mini/cls-*`` has the results.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from common import RECIPES, claim, save
from image_backbones import CONTRAST, Pretraining, Recipe, ViT, contrast_phase, upstream_accuracy
from torch import Tensor, nn

from data_prep.world.glyphs import vocabulary
from fedmuscle_lib.core.torch_state import fixed_state
from fedmuscle_lib.models import load_backbone

SHIPPED = Path(__file__).parents[2] / "data_prep/weights/mini"


class ClsViT(ViT):
    """A ViT whose feature is the CLS token's last state."""

    def features(self, backbone: nn.Module, images: Tensor) -> tuple[Tensor, Any]:
        states = backbone(pixel_values=images * 2 - 1).last_hidden_state
        return states[:, 0], states[:, 1:]


@fixed_state(1)  # one thread makes the sums, hence the weights, repeatable
def pretrain(name: str, out: Path, steps: int | None = None) -> None:
    """Train a shipped ViT on and save it in ``out/cls-<name>``.

    Args:
        steps: of each phase; those of ``CONTRAST`` if None.
    """
    own = RECIPES["image_backbones"][name]
    recipe = Recipe(**own | {"architecture": ClsViT(**own["architecture"])})
    folder, words = claim(out / f"cls-{name}"), vocabulary()
    model = Pretraining(recipe.architecture, len(words.upstream))
    model.backbone.load_state_dict(load_backbone(SHIPPED / name).state_dict())
    for number, phase in enumerate(CONTRAST):
        phase = (*phase[:2], steps or phase[2])
        model = contrast_phase(f"cls-{name}", recipe, model, number, phase, words)
    accuracy = round(upstream_accuracy(model, np.array(words.upstream), words), 4)
    report = {"name": f"cls-{name}", "started_from": name, "feature": "the CLS token"}
    save(model.backbone, folder, {**report, **asdict(recipe), "upstream_accuracy": accuracy})


def main(
    names: list[str],
    out: Annotated[Path, typer.Option(help="Write cls-NAME below this folder.")],
    steps: Annotated[int | None, typer.Option(help="Steps of each phase.")] = None,
) -> None:
    """Train ViTs of the embedded world on with the CLS token as their feature."""
    for name in names:
        pretrain(name, out, steps)


if __name__ == "__main__":
    typer.run(main)
