# make demo: sets up and runs a real module. make test: sets up and runs all checks and tests.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo test test-long check clean

demo: $(VENV)/.installed
	$(BIN)/python examples/demo.py

test: check
	$(BIN)/python -m pytest -n 2 -m "not long" --cov --cov-report=term

check: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# HLOOM_CASES bounds how many cases each generated test runs.
test-long: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -n 2 -m long --timeout=3000

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(VENV)/.installed-dev: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@ $(VENV)/.installed

clean:
	rm -rf $(VENV) build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage*
