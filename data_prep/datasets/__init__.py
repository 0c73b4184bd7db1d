"""The public data sets of the paper. To add one, add its module to this folder: the command line finds it.

A data set's module defines:

* ``ENTRIES``: an ``Entry`` for each data set in it;
* ``places(name, options)``: the folders below ``data_dir`` that a run of the data set ``name`` writes, as a tuple of ``Place``;
* ``write(run)``: reads the archives of ``run.entry`` and writes these folders below ``run.root``.

Sizes and checksums of archives are those that torchvision and the COCO tools check. Where no checksum of the whole file is published
(fastai's are of its first MiB), the entry has none, and the size and the counts tell the official archive from another edition.
Hugging Face ``datasets`` cannot take the place of these modules: it downloads conversions of its own, and reads neither the official
archives nor a folder of them.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from data_prep.io.entry import Entry

_FILES = [import_module(f"{__name__}.{file.name}") for file in iter_modules(__path__)]
MODULES = [module for module in _FILES if hasattr(module, "ENTRIES")]  # the others are what these share
CATALOGUE: dict[str, Entry] = {entry.name: entry for module in MODULES for entry in module.ENTRIES}
