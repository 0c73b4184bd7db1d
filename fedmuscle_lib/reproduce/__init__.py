"""Notebooks executed headlessly, several at a time, and an index page of what they made.

``plan`` says what to run, ``estimate`` for how long, ``grid`` runs it, ``child`` is the program of
a notebook's process, ``pages`` exports an executed notebook and ``index`` writes the page of all of
them. Importing this loads neither torch nor pandas nor papermill, so that a notebook can use it
too.
"""

from fedmuscle_lib.core.notebooks import NOTEBOOKS, declared, literal
from fedmuscle_lib.reproduce.grid import Outcome, reproduce
from fedmuscle_lib.reproduce.index import index
from fedmuscle_lib.reproduce.plan import plan, select
