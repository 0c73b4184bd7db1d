# Every target sets up what it needs on a fresh clone; all that this takes is Python 3.11 to 3.14.
PYTHON    ?= python3
PROFILE   ?= mini
SEEDS     ?=
PUBLICS   ?= first
JOBS      ?= 2
OUTPUT    ?= results
NOTEBOOKS ?=
NAME      ?=
LAB_FLAGS ?=
LESSONS   ?= $(wildcard notebooks/lessons/*.ipynb notebooks/lessons/solutions/*.ipynb)

RUN       := .venv/bin/python
INSTALLED := .venv/.installed
TORCH     := $(shell sed -n 's/^ *"\(torch==[^"]*\)".*/\1/p' pyproject.toml)
PARALLEL  := -n auto --maxprocesses 4 --dist worksteal --durations 10
# users fetch the other profiles' data: see docs/data.md
WORLD      = $(if $(filter mini,$(PROFILE)),$(RUN) -m data_prep mini)
# A first Delta after some minutes, from two runs that several notebooks have in common.
FIRST      = $(if $(filter-out mini,$(PROFILE))$(SEEDS)$(NOTEBOOKS),,FEDMUSCLE_SHIPPED=0 $(RUN) -m fedmuscle_lib run --with-local)
GRID       = $(RUN) -m fedmuscle_lib reproduce $(NOTEBOOKS) --profile $(PROFILE) --jobs $(JOBS) $(if $(SEEDS),--seeds $(SEEDS))
SHIP       = $(RUN) scripts/ship_runs.py $(or $(patsubst %,figures/$(PROFILE)/%,$(filter-out all,$(NOTEBOOKS))),$$(dirname figures/$(PROFILE)/*/provenance.json))

# Bytecode is kept also where the environment asks for none: each process of the tests would compile the library anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help reproduce figures reference notebook lessons lint lock mini test test-all lab site slides browser-test release clean

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1\t/p' Makefile | expand -t 14
	@echo 'Variables of reproduce, figures and reference: PROFILE=$(PROFILE) SEEDS=0,1,2 JOBS=$(JOBS) (figures: 4) NOTEBOOKS="table7 controls" or all (by default;'
	@echo 'reproduce: the main tables), of the first two also OUTPUT=$(OUTPUT); of reproduce: PUBLICS=$(PUBLICS) or all; of notebook: NAME; of lessons: LESSONS;'
	@echo 'of lab: LAB_FLAGS="--no-browser --port 8890"'

# torch goes first and exactly as pinned: asked for a range, or through another package's range, some indexes answer with a
# CUDA build of several GB. Python compiles a module when it first imports it; pip would compile all of them, for a minute.
# The stamp comes last, so that an interrupted installation does not count as one.
$(INSTALLED): pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14) and "Python 3.11 to 3.14 is needed: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv .venv
	$(RUN) -m pip install --no-compile $(TORCH)
	$(RUN) -m pip install --no-compile --constraint requirements.lock --editable '.[test]'
	@touch $@

reproduce: $(INSTALLED)  ## compute the notebooks' runs; tables and figures go to results/
	$(WORLD)
	$(FIRST)
	$(GRID) --output $(OUTPUT) $(if $(filter first,$(PUBLICS)),--first-public)

figures: JOBS = 4  # drawing waits for files and kernels half of its time
figures: $(INSTALLED)  ## draw the notebooks' tables and figures from shipped and stored runs, computing nothing
	$(WORLD)
	$(GRID) --output $(OUTPUT) --shipped-only

reference: $(INSTALLED)  ## verify the shipped runs, compute the notebooks' runs, and write and ship figures/
	$(if $(SEEDS),,$(error name the seeds of the reference: make reference SEEDS=0,1,2))
	$(WORLD)
	$(RUN) -m fedmuscle_lib verify --sample 2 --profile $(PROFILE)
	$(GRID) $(if $(NOTEBOOKS),,all) --output figures
	$(SHIP)
	FEDMUSCLE_RUNS=$$(mktemp -d) $(GRID) --output figures --shipped-only  # as every clone draws it
	$(SHIP)
	$(RUN) -m fedmuscle_lib.report.results
	$(RUN) scripts/draw_worlds.py

notebook: $(INSTALLED)  ## write a new ablation notebook: make notebook NAME=depth
	$(RUN) -m fedmuscle_lib notebook $(NAME)

lessons: $(INSTALLED)  ## execute the lessons and their solutions, keeping their outputs
	$(RUN) -m nbconvert --to notebook --execute --inplace --ExecutePreprocessor.record_timing=False $(LESSONS)

lint: $(INSTALLED)
	$(RUN) -m ruff check
	$(RUN) -m ruff format --check
	$(RUN) -m mypy

mini: $(INSTALLED)
	$(RUN) -m data_prep mini

test: $(INSTALLED)  ## lint, then every test that takes seconds
	$(MAKE) --jobs 2 lint mini  # each takes most of a minute of one core
	$(RUN) -m pytest $(PARALLEL)

test-all: lint mini  ## lint, then every test, also those that take minutes
	$(RUN) -m pytest -m 'not browser' $(PARALLEL)

lab: $(INSTALLED)  ## open the notebooks in JupyterLab
	$(RUN) -m data_prep mini
	@mkdir -p .venv/share/jupyter/lab/settings  # a new environment asks whether to fetch Jupyter's news
	@echo '{"@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": false}}' > .venv/share/jupyter/lab/settings/overrides.json
	$(RUN) -m jupyterlab --allow-root --ServerApp.root_dir=. --LabApp.default_url=/lab/tree/notebooks/00_start_here.ipynb $(LAB_FLAGS)

# what these targets alone need
.venv/.site .venv/.browser .venv/.dev: .venv/.%: $(INSTALLED)
	$(RUN) -m pip install --constraint requirements.lock --editable '.[$*]'
	@touch $@

site: .venv/.site  ## build lessons, results and documents as pages, running no notebook: build/site/index.html
	rm -rf build/site
	$(RUN) docs/site/site_pages.py build/site-sources
	$(RUN) -m sphinx --fail-on-warning --keep-going --quiet -c docs/site build/site-sources build/site

slides: .venv/.site  ## write the lessons as slides that need no network: build/slides/
	$(RUN) scripts/slides.py build/slides

browser-test: .venv/.browser site  ## run lessons in JupyterLab and read the site, in Chromium: build/screenshots/
	$(RUN) -m data_prep mini
	$(RUN) -m pytest -m browser tests/browser

# Without torch and what only its CUDA build pulls in: its pin says which torch, the index which build.
lock: .venv/.dev  ## resolve requirements.lock again, for every supported Python and system
	$(RUN) -m uv pip compile pyproject.toml --universal --python-version 3.11 --all-extras --no-header --no-annotate --quiet \
	  --no-emit-package torch --no-emit-package fedmuscle-notebooks | grep -vE '^(cuda|nvidia|triton)' > requirements.lock

release: .venv/.dev  ## build wheel and sdist, and try each in an empty environment and folder
	rm -rf dist build/release
	$(RUN) -m uv build
	set -e; for built in dist/*.whl dist/*.tar.gz; do \
	  $(PYTHON) -m venv --clear build/release; \
	  build/release/bin/python -m pip install --quiet $(TORCH); \
	  build/release/bin/python -m pip install --quiet --constraint requirements.lock $$built; \
	  mkdir build/release/empty; \
	  (cd build/release/empty && ../bin/python -m data_prep mini && ../bin/python -m fedmuscle_lib run --users 4,6 --others 1 --rounds 1); \
	  echo "$$built works"; \
	done

clean:  ## remove the environment and caches; data and results stay
	rm -rf .venv build dist *.egg-info .pytest_cache .ruff_cache .mypy_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
