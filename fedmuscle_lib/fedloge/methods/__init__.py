"""The federated methods by name.

One module each; a new module in this folder registers itself, and nothing else changes.
"""

from fedmuscle_lib.core.registry import import_modules
from fedmuscle_lib.fedloge.methods.method import Method, Problem, Recipe, Visit

import_modules(__name__)
names, get = Method.names, Method.get
