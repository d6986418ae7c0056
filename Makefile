PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: help demo demo-mpi test check test-long coverage docs site release-check clean

help:  ## tells all targets
	@sed -n 's/^\([a-z-]*\):.*## /\1 /p' Makefile | awk '{name = $$1; $$1 = ""; printf "make %-14s%s\n", name, $$0}'

demo: $(VENV)/.installed  ## sets up, then loads a real HLO module, prints it and runs it
	$(BIN)/python examples/demo.py

demo-mpi: $(VENV)/.installed-examples  ## sets up, then trains a transformer on four processes, and on one to compare
	JAX_PLATFORMS=hloom $(BIN)/mpiexec -n 4 $(BIN)/python examples/train_on_ranks.py

test: check  ## sets up, then runs all checks and the default tests, those that failed last first
	$(BIN)/python -m pytest -n 2 -m "not long" --ff

check: $(VENV)/.installed-dev  ## formatting, lint, types, language
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tools/prose.py

# HLOOM_CASES bounds how many cases each generated test runs.
test-long: $(VENV)/.installed-dev  ## generated cases by the thousand; other processors
	$(BIN)/python -m pytest -n 2 -m long --timeout=3000

coverage: $(VENV)/.installed-dev  ## the share of the operations' lines that their tests run
	$(BIN)/python -m pytest -n 2 -m "not long" --cov --cov-report=term tests/ops tests/builder tests/verifier tests/proto

docs: $(VENV)/.installed-dev  ## writes the pages that are made from the code
	$(BIN)/python tools/reference.py
	$(BIN)/python tools/clauses.py
	$(BIN)/python tools/stubs.py
	$(BIN)/python tools/pictures.py
	$(BIN)/python tools/verdicts.py

site: $(VENV)/.installed-dev  ## builds the documentation site, without warnings, in build/site
	$(BIN)/python tools/documentation.py

release-check: $(VENV)/.installed-dev  ## builds sdist and wheel; runs the demo from the wheel in an empty environment
	$(BIN)/python tools/check_release.py

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile --editable .
	touch $@

$(VENV)/.installed-dev: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@ $(VENV)/.installed

$(VENV)/.installed-examples: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[examples]'
	touch $@ $(VENV)/.installed

clean:  ## removes what was built and installed
	rm -rf $(VENV) build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage*
