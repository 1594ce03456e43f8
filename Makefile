# The commands of this repository; their names are fixed (docs/style.md, rule 58).
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.stamp
PACKAGES := domain placement workflows store runtime activities agent keeper sim worker api drystone

SEED  ?= 1
SEEDS ?= 200
CASES ?= tests/cases
PYTEST_ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup lock

help:
	@grep -E '^[a-z]+:.*##' $(firstword $(MAKEFILE_LIST)) | sed -E 's/:.*## /\t/' | expand -t 10

setup: $(STAMP) ## the environment in .venv, nothing else

# The stamp is written last, so an interrupted setup starts again.
$(STAMP): requirements-dev.txt pyproject.toml
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@
