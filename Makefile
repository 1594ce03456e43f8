# The commands of this repository; their names are fixed (docs/style.md, rule 58).
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.stamp
PYTEST := $(BIN)/python -m pytest

SEED  ?= 1
SEEDS ?= 200
CASES ?=
BENCH ?= lifecycle
PYTEST_ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup demo test check static e2e sim cases bench histories lock

help:
	@grep -E '^[a-z0-9]+:.*##' $(firstword $(MAKEFILE_LIST)) | sed -E 's/:.*## /\t/' | expand -t 10

setup: $(STAMP) ## the environment in .venv, nothing else

# The stamp is written last, so an interrupted setup starts again.
$(STAMP): requirements-dev.txt pyproject.toml
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

demo: $(STAMP) ## real work through the whole path, then the Web UI's address
	$(BIN)/python -m drystone.demo

test: static ## lint, types, imports and every test that is not slow
	$(PYTEST) -m "not slow" $(PYTEST_ARGS) tests

check: static ## lint, types, imports, layout
	$(PYTEST) -q tests/test_layout.py

static: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

e2e: $(STAMP) ## real processes, real kills
	$(PYTEST) -m e2e $(PYTEST_ARGS) tests

sim: $(STAMP) ## the system on a virtual clock with faults: SEED=n SEEDS=k
	$(BIN)/python -m sim $(SEED) --seeds $(SEEDS)

cases: $(STAMP) ## peer cases through the adapters: CASES=folder
	@test -n "$(CASES)" || { echo "make cases CASES=folder"; exit 2; }
	$(PYTEST) $(PYTEST_ARGS) --cases "$(abspath $(CASES))" tests/cases

bench: $(STAMP) ## one benchmark as JSON: BENCH="placement --machines 1000"
	@$(BIN)/drystone bench $(BENCH) --json

histories: $(STAMP) ## record the workflow histories that replay is tested on
	$(BIN)/python -m tests.histories.record

# Locking asks the public index alone, so that the hashes hold for any mirror of it.
LOCK := PIP_CONFIG_FILE=/dev/null PIP_FIND_LINKS= $(VENV)/.lock/bin/pip-compile --quiet --no-header --generate-hashes \
  --strip-extras --no-emit-index-url --no-emit-trusted-host --no-emit-find-links
LOCK_ARGS ?=

lock: $(STAMP) ## write requirements*.txt anew; LOCK_ARGS="--upgrade-package NAME"
	@test -x $(VENV)/.lock/bin/pip-compile || { $(PYTHON) -m venv $(VENV)/.lock && \
	  $(VENV)/.lock/bin/python -m pip install --quiet --disable-pip-version-check pip-tools==7.6.2; }
	$(LOCK) $(LOCK_ARGS) --output-file requirements.txt requirements.in
	$(LOCK) $(LOCK_ARGS) --constraint requirements.txt --output-file requirements-dev.txt requirements-dev.in
