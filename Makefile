# Nothing but Python 3.11 or newer (with venv), make and git is needed; everything else goes into .venv, from hashed locks.
# `make` alone lists the targets. A second run of any of them installs nothing.

PYTHON ?= python3
ARGS   ?=
BIN    := .venv/bin
PYTEST := $(BIN)/python -m pytest

# More processes than cores, since tests wait for servers most of the time. The first two alone start a graph (about 1.2 GB);
# a file's tests stay together, and the longest come first: tests/scheduling.py.
PARALLEL ?= -n 3 --dist loadfile

# The newest release of the graph's engine that has a jar lock; the default one is the LTS of the settings.
NEO4J_LATEST ?= 2026.08.1

export PYTHON
# A virtual environment or module path of the caller's must not leak into ours; and each process of the tests would compile
# all modules anew, which takes it longer than to import them.
unexport VIRTUAL_ENV PYTHONPATH PYTHONHOME PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo up test e2e test-latest bench chaos mutate lint format reference docs wheel lock clean

help: ## List the targets.
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | while IFS="	" read -r name text; do printf '  %-12s %s\n' "$$name" "$$text"; done

demo: .venv/.runtime ## Start everything, load the examples, print briefings, stop. ARGS=--keep leaves it running.
	@$(BIN)/imem demo $(ARGS)

up: .venv/.runtime ## Start the local stack in the foreground; Ctrl-C stops it.
	@$(BIN)/imem up $(ARGS)

test: .venv/.dev ## Run the tests. ARGS='-n0 tests/unit' chooses some.
	@$(PYTEST) $(PARALLEL) $(ARGS)

e2e: .venv/.dev ## Run the tests that start whole stacks, as users do: from a clone, a package, the pages of the documentation.
	@$(PYTEST) -n 2 --dist loadfile -m "e2e and not chaos" $(ARGS)

test-latest: .venv/.dev ## Run the graph suite on the newest Neo4j release instead of the LTS (nightly).
	@IMEM_TEST_NEO4J=$(NEO4J_LATEST) $(PYTEST) $(PARALLEL) $(or $(ARGS),tests/kg/queries tests/kg/projection)

bench: .venv/.dev ## Measure, and print one table with the floor beside each figure.
	@$(PYTEST) -n0 -m bench $(or $(ARGS),tests/bench)

chaos: .venv/.dev ## Run the crash tests at full count (long).
	@IMEM_CHAOS=1 $(PYTEST) -n0 -m "chaos or longer" $(ARGS)

mutate: .venv/.dev ## Break a copy on purpose, and demand that the tests notice (long). ARGS='--only NAME' tries one.
	@$(BIN)/python tools/mutate.py $(ARGS)

lint: .venv/.dev ## Check style, types and the direction of imports.
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy .
	@$(BIN)/lint-imports

format: .venv/.dev ## Rewrite the code in the house style.
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

reference: .venv/.dev ## Write the tables in docs/ that come from the code: commands, settings, errors, rights, kinds.
	@$(BIN)/python tools/reference.py

docs: .venv/.docs ## Build the documentation into docs/_build; a broken link is an error.
	@$(BIN)/python -m sphinx -W -n -E --keep-going -b html docs docs/_build/html

wheel: .venv/.dev ## Build the wheel and the source archive into dist/.
	@$(BIN)/python -m build --no-isolation --outdir dist

lock: .venv/.dev ## Make the lock files anew. ARGS=--upgrade takes newer versions.
	@tools/lock.sh $(ARGS)

clean: ## Remove what the other targets made here. The data of the local stack is not here: imem down --purge.
	@rm -rf .venv .make build dist docs/_build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/.%: requirements/%.lock requirements/installer.lock pyproject.toml tools/environment.sh
	@tools/environment.sh $*
