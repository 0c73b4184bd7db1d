"""The algorithms of Table 3 and its controls by name. One module each; a new module in this folder
registers itself, and nothing else changes.
"""

from fedmuscle_lib.core.registry import import_modules
from fedmuscle_lib.creamfl.algorithms.algorithm import Algorithm

import_modules(__name__)
names, get = Algorithm.names, Algorithm.get
