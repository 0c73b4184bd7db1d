"""Preparation of data: each command of ``python -m data_prep`` ends in the README's ``data_dir``
layout, or in a folder of checkpoints.

A module imports from its own wing and from the wings above it in this list:

    io/           downloads, archives, image files, writers of the layout, a data set's run
    datasets/     the public data sets, a module each, and who gets which sample of them
    world/        the embedded world, which is generated: glyphs, images of them, a language
    checkpoints/  pretrained backbones that are fetched
    __main__      the command line

``scripts/pretrain`` has the scripts that made the shipped backbones.
"""

from fedmuscle_lib.core.files import SOURCE

# the checkpoints that the repository ships, by profile
MINI_WEIGHTS = SOURCE / "data_prep/weights/mini"
MINI_DIFFUSION = SOURCE / "data_prep/weights/mini-diffusion"  # and the images that it made
SMALL_WEIGHTS = SOURCE / "data_prep/weights/small"
