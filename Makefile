# Every target sets up what it needs on a fresh clone; all that this takes is Python 3.11 or newer.
PYTHON    ?= python3
PROFILE   ?= mini
SEEDS     ?= 0
JOBS      ?= 2
OUTPUT    ?= figures
NOTEBOOKS ?=

RUN       := .venv/bin/python
INSTALLED := .venv/.installed
PARALLEL  := -n auto --maxprocesses 4 --dist worksteal

.DEFAULT_GOAL := help
.PHONY: help reproduce test test-all lab clean

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1\t/p' Makefile | expand -t 12
	@echo 'Variables of reproduce: PROFILE=$(PROFILE) SEEDS=$(SEEDS) JOBS=$(JOBS) OUTPUT=$(OUTPUT) NOTEBOOKS="table7 controls" (all by default)'

# torch goes first and exactly as pinned: asked for a range, or through another package's range, some indexes answer with a
# CUDA build of several GB. The stamp comes last, so that an interrupted installation does not count as one.
$(INSTALLED): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv .venv
	$(RUN) -m pip install $$(sed -n 's/^ *"\(torch==[^"]*\)".*/\1/p' pyproject.toml)
	$(RUN) -m pip install --editable '.[test]'
	@touch $@

reproduce: $(INSTALLED)  ## run the notebooks and regenerate their tables and figures
	@# other profiles' data are for the user to fetch: see README, Real data
	$(if $(filter mini,$(PROFILE)),$(RUN) -m data_prep mini)
	$(RUN) -m fedmuscle_lib reproduce $(NOTEBOOKS) --profile $(PROFILE) --seeds $(SEEDS) --jobs $(JOBS) --output $(OUTPUT)

test: $(INSTALLED)  ## lint, then every test that takes seconds
	$(RUN) -m data_prep mini
	$(RUN) -m ruff check
	$(RUN) -m pytest $(PARALLEL)

test-all: $(INSTALLED)  ## lint, then every test, those of minutes too
	$(RUN) -m data_prep mini
	$(RUN) -m ruff check
	$(RUN) -m pytest -m '' $(PARALLEL)

lab: $(INSTALLED)  ## open the notebooks in JupyterLab
	$(RUN) -m data_prep mini
	$(RUN) -m jupyterlab notebooks

clean:  ## remove the environment, the embedded world and caches; figures and stored runs stay
	rm -rf .venv data/mini build dist *.egg-info .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
