"""Figures: one colour and marker per algorithm everywhere, ours solid beside the paper's hollow,
intervals wherever seeds give one.

Every function returns a closed ``Figure``, so that a notebook shows it once; :func:`save` writes
files that depend on nothing but it. A module draws one kind of figure; ``palette`` has the
algorithms' colours.
"""

from fedmuscle_lib.core.style import save
from fedmuscle_lib.plots.ablation import ablation
from fedmuscle_lib.plots.curve import curve
from fedmuscle_lib.plots.forest import forest, in_short
from fedmuscle_lib.plots.palette import STYLES, styles
