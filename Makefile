# Everything a fresh machine with Python, pip and make needs: `make demo`, `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: help setup demo test lint types contracts unit e2e bench reproduce clean lock

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

setup: $(READY) ## make .venv with the locked dependencies and the package

$(READY): requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $(READY)

demo: setup ## run the main job on the quick-start: real processes, rehearsed prices, no money spent
	$(BIN)/cloudgavel run examples/quickstart/jobs.yaml --budget 500 --yes

test: setup lint types contracts unit ## ruff, mypy --strict, import contracts, all tests but whole runs on served clouds

lint: setup
	$(BIN)/ruff check cloudgavel tests benchmarks examples
	$(BIN)/ruff format --check cloudgavel tests benchmarks examples

types: setup
	$(BIN)/mypy

contracts: setup
	$(BIN)/lint-imports

unit: setup
	$(BIN)/python -m pytest -n 2 -m "not served"

e2e: setup ## whole runs: crashes, AWS and Google Cloud served on this machine, both at once
	$(BIN)/python -m pytest tests/e2e

lock: setup ## write requirements.lock anew from pyproject.toml (needs uv)
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --universal --python-version 3.11 pyproject.toml --extra dev --no-emit-index-url --no-header -q -o requirements.lock

bench: setup ## time and memory of the policies beside their goals, one table (minutes)
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.table

DATA ?= data
reproduce: setup ## the published comparisons beside ours (DATA=folder with gavel/), as reproduction.md and .html
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.reproduce --data $(DATA) --out reproduction.md --results .reproduction

clean: ## remove what was built
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache
