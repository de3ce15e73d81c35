# The only list of commands. Each target does all the set-up it needs; the second time it is quick.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LOWEST := .venv-lowest
KERNEL_TESTS := tests/trees tests/domains/test_cart_pole.py tests/domains/test_hiv.py tests/evaluators/test_td.py \
	tests/policy_spaces/test_linear.py tests/policy_spaces/test_optimal_trees.py

# One BLAS thread a worker: two workers with two threads each would wait for each other.
test test-all test-nojit test-lowest: export OPENBLAS_NUM_THREADS := 1
test test-all test-nojit test-lowest: export MKL_NUM_THREADS := 1

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all test-nojit test-lowest lint fmt bench clean

help:  ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(VENV)/.ready  ## make .venv and install capi with all tools

demo: $(VENV)/.ready  ## from a table of patients to a tree, what it is worth, and a page that shows it
	$(BIN)/python demo/hiv.py

test: $(VENV)/.ready  ## run the tests (fast ones)
	$(BIN)/python -m pytest -q -n 2 -m "not slow"

test-all: $(VENV)/.ready  ## run all tests, the slow ones too
	$(BIN)/python -m pytest -q -n 2

test-nojit: $(VENV)/.ready  ## run the kernels' tests without compiling anything, and show which lines they reach
	NUMBA_DISABLE_JIT=1 $(BIN)/python -m pytest -q --cov -n 2 -m "not slow" $(KERNEL_TESTS)

test-lowest: $(LOWEST)/.ready  ## run the tests (fast ones) with the lowest versions that pyproject.toml allows
	$(LOWEST)/bin/python -m pytest -q -n 2 -m "not slow" -W ignore::DeprecationWarning -W ignore::FutureWarning  # old and new libraries together

lint: $(VENV)/.ready  ## check style, types, import order and spelling
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/codespell

fmt: $(VENV)/.ready  ## format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.ready  ## run the benchmarks beside their peers
	$(BIN)/python -m pip install --quiet -e ".[bench]"
	$(BIN)/capi bench

clean:  ## remove everything that was made
	rm -rf $(VENV) $(LOWEST) .coverage results dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

define make_venv
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) is missing: install Python 3.11 or later, or say make PYTHON=/path/to/python"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "capi needs Python 3.11 or later, $(PYTHON) is $$($(PYTHON) -V): say make PYTHON=python3.11"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "Python's venv module is missing: on Debian or Ubuntu run apt-get install python3-venv"; exit 1; }
	@echo "setting up $(@D) (once; needs the package index)"
	@$(PYTHON) -m venv --clear $(@D)
	@$(@D)/bin/python -m pip install --quiet --upgrade "pip>=25.1"
endef

$(VENV)/.ready: pyproject.toml
	$(make_venv)
	@$(BIN)/python -m pip install --quiet -e . --group dev
	@$(BIN)/python -m pip install --quiet --no-deps lifelines  # for the table of a trial that comes with it; it would hold pandas back
	@touch $@

$(LOWEST)/.ready: pyproject.toml scripts/lowest.py
	$(make_venv)
	@$(LOWEST)/bin/python scripts/lowest.py > $(LOWEST)/lowest.txt
	@$(LOWEST)/bin/python -m pip install --quiet -e . -r $(LOWEST)/lowest.txt
	@$(LOWEST)/bin/python -m pip install --quiet --no-deps lifelines
	@touch $@
