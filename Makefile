# Every target makes what it needs first and can be run again. `make env` explains what is missing, if something is.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# -P keeps the checkout's folders from being imported as top-level packages.
RUN := $(BIN)/python -P

.DEFAULT_GOAL := help
.PHONY: help env lint format test verify quickstart bench clean clean-cache

help: ## say what the targets are
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

env: ## build the two environments (kept in a cache) and this checkout's .venv
	@$(PYTHON) requirements/build.py --venv $(VENV)

lint: env ## style, format, types, import layers
	$(RUN) tests/run.py --only static

format: env ## put the sources into the house's form
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

test: env ## everything that CI runs, timed by section
	@$(RUN) tests/run.py

verify: env ## learning runs, kills and long fuzzing; goes on where it stopped; writes docs/measured/
	@$(RUN) tests/verify/run.py

quickstart: env ## train a small agent with reinforcement learning on this machine
	@$(RUN) -m agar.examples.quickstart.run

bench: env ## measure the gateway and the ledger
	@$(RUN) benchmarks/gateway.py
	@$(RUN) benchmarks/ledger.py

clean: ## remove what was built in this checkout (not the cache, not runs/)
	rm -rf $(VENV) $(VENV).log build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache src/agar.egg-info

clean-cache: ## remove cached environments that this checkout no longer asks for
	@$(PYTHON) requirements/build.py --remove-old
