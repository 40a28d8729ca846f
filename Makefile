# Everything this project needs, from nothing but Python >= 3.11 and make.
SHELL := /bin/sh
.DEFAULT_GOAL := help
.PHONY: help install demo example test test-slow test-all test-durations chaos bench bench-peers docs lint lock clean

# The first interpreter on PATH that runs and is new enough.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 /usr/bin/python3 python; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$$p"; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

help: ## what can be made
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 17

install: $(READY) ## .venv with everything for development, from the hashed lock

$(READY): requirements-dev.txt
	@test -n "$(PYTHON)" || { echo "make: no Python >= 3.11 on PATH; install one, or name it: make PYTHON=/path/to/python3" >&2; exit 1; }
	@echo "installing the locked packages into $(VENV)"
	@"$(PYTHON)" -m venv --clear $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.txt
	@touch $@

demo: $(READY) ## the whole road on embedded servers, with faults on the way
	@$(BIN)/python -m examples.demo

EXAMPLES := $(patsubst examples/%/__main__.py,%,$(wildcard examples/*/__main__.py))
example: $(READY) ## one of the applications in examples/ on embedded servers (NAME=orders)
	@test -n "$(filter $(NAME),$(EXAMPLES))" || { echo "make: name an example: make example NAME=orders; there are: $(EXAMPLES)" >&2; exit 1; }
	@$(BIN)/python -m examples.$(NAME)

# Several processes, each with servers of its own. All of them import what was compiled by the first.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n auto
test: $(READY) ## what shows within minutes that a change broke nothing, on embedded servers (ARGS="-k order")
	@$(PYTEST) -m "not slow" $(ARGS)

test-slow: $(READY) ## the rest: what takes long for one test
	@$(PYTEST) -m slow $(ARGS)

test-all: $(READY) ## both
	@$(PYTEST) $(ARGS)

test-durations: $(READY) ## the same as test, and where its time goes (ARGS="-m slow")
	@$(PYTEST) -m "not slow" --where-time-goes $(ARGS)

docs: $(READY) ## the tables and pictures of the reference pages, from the code and the latest results
	@$(BIN)/python docs/generate.py

chaos: $(READY) ## every death and outage at full size, some minutes
	@CHAOS=full $(BIN)/python -m pytest tests/chaos $(ARGS)

bench: $(READY) ## what is reached beside the limit and others, some 25 minutes (QUICK=1: minutes; ARGS="--only drain")
	@$(BIN)/python -m benchmarks $(if $(QUICK),--quick) $(ARGS)

bench-peers: $(READY) ## others who carry rows of Postgres, in turns with the relay; installs them first (QUICK=1)
	@$(BIN)/python -m benchmarks.peers.install
	@$(BIN)/python -m benchmarks $(if $(QUICK),--quick) --only peers $(ARGS)

lint: $(READY) ## style, types, import rules
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

COMPILE := $(BIN)/uv pip compile pyproject.toml --quiet --universal --python-version 3.11 --generate-hashes \
	--no-annotate --custom-compile-command "make lock"
lock: $(READY) ## write both locks anew from pyproject.toml (ARGS=--upgrade for newer releases)
	@$(COMPILE) --extra relay --extra consumers --group runtime --output-file requirements.txt $(ARGS)
	@$(COMPILE) --all-extras --group development --output-file requirements-dev.txt --constraint requirements.txt $(ARGS)
	@$(subst pyproject.toml,benchmarks/peers/requirements.in,$(COMPILE)) --output-file benchmarks/peers/requirements.txt $(ARGS)

clean: ## remove the environment and caches
	rm -rf $(VENV) .venv-peers benchmarks/peers/node_modules .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
