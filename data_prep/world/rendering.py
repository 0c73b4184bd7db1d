"""Renderer of the embedded world's images: objects on a coloured, textured, cluttered ground.

All arithmetic is in double precision. Processors round the last bit of sines and sums differently.
In single precision that moved one byte in 150,000 of the images; in double precision it moves none.

Nuisances (ground, strokes, colours, pose, noise) are drawn anew for every image from wide
distributions, so that none of them identifies an image's classes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional as F

from data_prep.world.glyphs import SIDE, Vocabulary

SIZE = 32  # pixels
_LUMA = torch.tensor([0.299, 0.587, 0.114], dtype=torch.float64)
_OUTLINE = 2  # pixels between an object's strokes and its outline
_QUADRANTS = np.array([[-0.5, -0.5], [-0.5, 0.5], [0.5, -0.5], [0.5, 0.5]])


@dataclass(frozen=True)
class Images:
    """``images`` (n, 3, SIZE, SIZE) in [0, 1]; ``classes`` (n, k) class ids, -1 where a slot is
    empty; ``alphas`` (n, k, SIZE, SIZE).

    Images and alphas are float64.
    """

    images: torch.Tensor
    classes: np.ndarray
    alphas: torch.Tensor

    def uint8(self) -> np.ndarray:
        """Return (n, SIZE, SIZE, 3) uint8, as image files and the CIFAR pickles hold them."""
        return (self.images * 255).round().to(torch.uint8).permute(0, 2, 3, 1).numpy()


def noise(n: int, side: int) -> np.ndarray:
    """Draw ``n`` images of noise, the same everywhere: each byte of a pixel is uniform and
    independent; (n, side, side, 3) uint8.
    """
    return np.random.RandomState(0).randint(0, 256, (n, side, side, 3), np.uint8)


def single(classes: np.ndarray) -> np.ndarray:
    """Arrange one object for each image: (n,) class ids -> (n, 1)."""
    return np.asarray(classes).reshape(-1, 1)


def scenes(
    n: int,
    pool: np.ndarray,
    low: int,
    high: int,
    rng: np.random.RandomState,
    weights: np.ndarray | None = None,
) -> np.ndarray:
    """Draw ``low`` to ``high`` distinct classes of ``pool`` for each image: (n, high) class ids, -1
    for an empty slot.
    """
    out = np.full((n, high), -1)
    for row in out:
        k = rng.randint(low, high + 1)
        row[:k] = rng.choice(pool, size=k, replace=False, p=weights)
    return out


def draw(
    classes: np.ndarray,
    split: str,
    words: Vocabulary,
    rng: np.random.RandomState,
    detail: float = 1.0,
    strokes: int = 2,
) -> Images:
    """Draw an image for each row of ``classes``.

    Args:
        classes: (n, k) class ids, -1 for none; k = 1 draws a large centred object, k > 1 puts each
            object in a quadrant of its own.
        split: which instances (fonts, handwritten examples) may be used.
        detail: scales texture, contrast of the ground and noise; 1 is the downstream images'.
        strokes: clutter strokes behind the objects.
    """
    n, k = classes.shape
    canvas = _ground(n, rng, detail)
    for _ in range(strokes):
        canvas = _over(canvas, _stroke(n, rng), torch.from_numpy(rng.rand(n, 3)), 0.6)
    alphas = torch.zeros(n, k, SIZE, SIZE, dtype=torch.float64)
    places = np.stack([rng.permutation(4) for _ in range(n)])
    for slot in range(k):
        present = classes[:, slot] >= 0
        if not present.any():
            continue
        rows = [rng.choice(words.instances[split][c]) for c in classes[present, slot]]
        count = int(present.sum())
        if k == 1:
            scale, centre = rng.uniform(0.72, 0.94, count), rng.uniform(-0.1, 0.1, (count, 2))
        else:
            scale = rng.uniform(0.46, 0.62, count)
            centre = _QUADRANTS[places[present, slot]] + rng.uniform(-0.08, 0.08, (count, 2))
        alpha = torch.zeros(n, SIZE, SIZE, dtype=torch.float64)
        alpha[torch.from_numpy(present)] = _place(words.masks[rows], scale, centre, rng)
        canvas = _over(canvas, alpha, _contrasting(canvas, alpha, rng), 1.0)
        alphas[:, slot] = alpha
    canvas = canvas + torch.from_numpy(rng.randn(n, 3, SIZE, SIZE)) * (0.04 * detail)
    return Images(canvas.clamp(0, 1), classes, alphas)


def outlined(alphas: torch.Tensor) -> torch.Tensor:
    """Turn strokes (n, k, SIZE, SIZE) into regions, as an annotator outlines an object around its
    strokes.
    """
    return F.max_pool2d(alphas, 2 * _OUTLINE + 1, stride=1, padding=_OUTLINE)


def _ground(n: int, rng: np.random.RandomState, detail: float) -> torch.Tensor:
    colour = torch.from_numpy(rng.rand(n, 3, 1, 1))
    patches = F.interpolate(
        torch.from_numpy(rng.rand(n, 3, 4, 4)),
        size=(SIZE, SIZE),
        mode="bicubic",
        align_corners=False,
    )
    y, x = _coordinates()
    freq = torch.from_numpy(rng.uniform(-9, 9, (n, 2, 1, 1)))
    phase = torch.from_numpy(rng.uniform(0, 2 * np.pi, (n, 1, 1)))
    amplitude = torch.from_numpy(rng.uniform(0, 0.18, (n, 1, 1, 1))) * detail
    wave = torch.sin(freq[:, 0] * x + freq[:, 1] * y + phase)[:, None]
    mix = 0.35 * detail
    return (0.9 - mix) * colour + mix * patches + 0.05 + amplitude * wave


def _coordinates() -> tuple[torch.Tensor, ...]:
    """Return y and x of every pixel, from -1 to 1: (SIZE, SIZE) each."""
    grid = torch.linspace(-1, 1, SIZE, dtype=torch.float64)
    return torch.meshgrid(grid, grid, indexing="ij")


def _stroke(n: int, rng: np.random.RandomState) -> torch.Tensor:
    """Draw soft segments of random place, direction and length: (n, SIZE, SIZE)."""
    y, x = _coordinates()
    cx, cy, angle, half, width = (
        torch.from_numpy(rng.uniform(low, high, (n, 1, 1)))
        for low, high in ((-0.9, 0.9), (-0.9, 0.9), (0, np.pi), (0.15, 0.5), (0.03, 0.07))
    )
    along = (x - cx) * angle.cos() + (y - cy) * angle.sin()
    across = -(x - cx) * angle.sin() + (y - cy) * angle.cos()
    return torch.sigmoid((half - along.abs()) * 30) * torch.sigmoid((width - across.abs()) * 40)


def _place(
    masks: torch.Tensor, scale: np.ndarray, centre: np.ndarray, rng: np.random.RandomState
) -> torch.Tensor:
    n = len(masks)
    angle = torch.from_numpy(rng.uniform(-0.15, 0.15, n))
    aspect = torch.from_numpy(rng.uniform(0.88, 1.12, n))
    stretch = torch.from_numpy(scale) * (SIDE / 24)
    # affine_grid wants the inverse map, image -> mask
    entries = [
        angle.cos() / (stretch * aspect),
        angle.sin() / (stretch * aspect),
        -angle.sin() / stretch,
        angle.cos() / stretch,
    ]
    inverse = torch.stack(entries, -1).view(n, 2, 2)
    shift = -(inverse @ torch.from_numpy(centre).flip(-1)[..., None])
    grid = F.affine_grid(torch.cat([inverse, shift], -1), [n, 1, SIZE, SIZE], align_corners=False)
    return F.grid_sample(masks[:, None], grid, align_corners=False)[:, 0].clamp(0, 1)


def _contrasting(
    canvas: torch.Tensor, alpha: torch.Tensor, rng: np.random.RandomState
) -> torch.Tensor:
    """Draw colours (n, 3) whose luma differs by 0.33 to 0.48 from that of the ground under the
    object.
    """
    n = len(canvas)
    under = (canvas * alpha[:, None]).sum((2, 3)) / alpha.sum((1, 2)).clamp_min(1e-3)[:, None]
    ground = under @ _LUMA
    step = torch.from_numpy(rng.uniform(0.33, 0.48, n))
    sign = torch.where(torch.from_numpy(rng.rand(n)) < 0.5, -1.0, 1.0).double()
    sign = torch.where(
        ground + sign * step > 1, -1.0, torch.where(ground + sign * step < 0, 1.0, sign)
    )
    colour = torch.from_numpy(rng.rand(n, 3))
    return (colour + (ground + sign * step - colour @ _LUMA)[:, None]).clamp(0, 1)


def _over(
    canvas: torch.Tensor, alpha: torch.Tensor, colour: torch.Tensor, opacity: float
) -> torch.Tensor:
    weight = alpha[:, None] * opacity
    return canvas * (1 - weight) + colour[:, :, None, None] * weight
