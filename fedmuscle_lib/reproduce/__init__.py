"""Notebooks executed headlessly, several at a time, and an index page of what they made.

``plan`` says what to run, ``children`` runs it in processes, ``child`` is the program of these, ``index`` writes the page and ``grid``
does all of it. ``parameters`` is what a notebook and the grid know of a parameters cell, ``needs`` counts the runs that notebooks ask
for. Importing this loads neither torch nor pandas nor papermill, so that a notebook can use it too.
"""

from fedmuscle_lib.reproduce.children import Outcome
from fedmuscle_lib.reproduce.grid import reproduce
from fedmuscle_lib.reproduce.index import index
from fedmuscle_lib.reproduce.needs import needs, needs_in_words
from fedmuscle_lib.reproduce.parameters import declared_parameters, literal
from fedmuscle_lib.reproduce.plan import NOTEBOOKS, plan, select

__all__ = ["NOTEBOOKS", "Outcome", "declared_parameters", "index", "literal", "needs", "needs_in_words", "plan", "reproduce", "select"]
