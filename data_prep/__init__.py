"""Preparation of data: each command of ``python -m data_prep`` ends in the README's ``data_dir``
layout, or in a folder of checkpoints.

A module imports from its own wing and from the wings above it in this list:

    io/        downloads, archives, image files, writers of the layout, a run of a data set's
               command
    datasets/  the public data sets, a module each, and who gets which sample of them
    world/     the embedded world, which is generated: glyphs, images of them, a language
    pretrain/  backbones for images and for text, pretrained here or fetched; a diffusion model
               and its images
    __main__   the command line
"""

from pathlib import Path

from fedmuscle_lib.core.files import ROOT

# the checkpoints that the repository ships, by profile
MINI_WEIGHTS = Path(__file__).parent / "weights/mini"
MINI_DIFFUSION = (
    Path(__file__).parent / "weights/mini-diffusion"
)  # and the images that it made of the users'
SMALL_WEIGHTS = Path(__file__).parent / "weights/small"
REAL_MODELS = ROOT / "data/real/models"  # what `pretrained` writes
