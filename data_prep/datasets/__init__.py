"""The public data sets of the paper. To add one, add its module to this folder: the command line
finds it.

A data set's module defines:

* ``ENTRIES``: an ``Entry`` for each data set in it, from ``catalogue.toml`` or built in the module;
* ``write(run)``: reads the archives of ``run.entry`` and writes the folder ``run.folder``;
* ``edition(entry, options)``, if its archives depend on the options: the ``Entry`` with those that
  are read;
* ``places(options)``, if its commands write several folders: a tuple of ``Place``, which ``write``
  writes below ``run.root``.

Hugging Face ``datasets`` cannot take the place of these modules: it downloads conversions of its
own, and reads neither the official archives nor a folder of them.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from data_prep.io.entry import Entry

_FILES = [import_module(f"{__name__}.{file.name}") for file in iter_modules(__path__)]
MODULES = [
    module for module in _FILES if hasattr(module, "ENTRIES")
]  # the others are what these share
CATALOGUE: dict[str, Entry] = {entry.name: entry for module in MODULES for entry in module.ENTRIES}
