"""Scaling of a vision model's images, in the words of Hugging Face's image processors."""

from __future__ import annotations

from typing import Any

# By model_type: mean and standard deviation of pixel values from 0 to 1, as each family's ``embed``
# takes them off.
_SCALING = {
    "vit": ([0.5] * 3, [0.5] * 3),
    "segformer": ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
    "efficientnet_lite": ([127 / 255] * 3, [128 / 255] * 3),
    "hybrid_vit": ([127 / 255] * 3, [128 / 255] * 3),
}
_BICUBIC = 3  # Pillow's number


def image_processor(model_type: str, size: int) -> dict[str, Any]:
    """The settings of a ``ViTImageProcessor`` that makes of an image what the model's first layer
    reads: (3, size, size).
    """
    mean, std = _SCALING[model_type]
    return {
        "image_processor_type": "ViTImageProcessor",
        "do_resize": True,
        "size": {"height": size, "width": size},
        "resample": _BICUBIC,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": mean,
        "image_std": std,
    }
