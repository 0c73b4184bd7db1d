"""Notebooks executed headlessly, several at a time, and an index page of what they made.

``plan`` says what to run, ``estimate`` for how long, ``children`` runs it in processes, ``child``
is the program of these, ``pages`` exports an executed notebook, ``index`` writes the page of all of
them and ``grid`` does all of it. Importing this loads neither torch nor pandas nor papermill, so
that a notebook can use it too.
"""

from fedmuscle_lib.core.notebooks import NOTEBOOKS, declared, literal
from fedmuscle_lib.reproduce.children import Outcome
from fedmuscle_lib.reproduce.estimate import overview
from fedmuscle_lib.reproduce.grid import reproduce
from fedmuscle_lib.reproduce.index import index
from fedmuscle_lib.reproduce.plan import plan, select
