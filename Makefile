# The commands of a working day. Each makes the virtual environment it needs when there is none.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# Test files side by side: much of a test is waiting. A file's tests stay in one process, and files
# begin in the order of tests/conftest.py.
# Their directories have short names: the path of a socket has at most 107 characters (unix(7)).
PYTEST  = $(BIN)/python -m pytest -n 8 --dist loadfile --no-loadscope-reorder --basetemp=$$(mktemp -d /tmp/t-XXXX)
RUNS   := $(VENV)/.runs
READY  := $(VENV)/.ready

# Tests and figures are of a launcher that is compiled, as an installed one is.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help run test full nightly gpu bench counts coverage docs lint release-check clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@echo
	@echo "Each makes the virtual environment that it needs. One test alone:"
	@echo "$(BIN)/python -m pytest tests/run/test_signals.py -k grace"

run: $(RUNS)  ## train the bundled model on two pinned workers
	$(BIN)/python -m spawnlaunch --nproc 2 -- --task language

test: $(READY)  ## the tests, in two minutes: what one runs before each commit
	$(PYTEST)

full: $(READY)  ## the same, and all real parts of this machine, such as Slurm, as CI does
	$(PYTEST) -m 'not nightly'

nightly: $(READY)  ## seeds by the 100,000, other libraries and versions, mutants; hours
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --group nightly
	@# speechbrain asks for it; its wheel needs CUDA, and transformers fails where it lies.
	$(BIN)/python -m pip uninstall --quiet --yes torchaudio
	rm -rf build/nightly; mkdir -p build/nightly
	-$(PYTEST) -n 2 -m nightly --junit-xml build/nightly/nightly.xml
	-$(BIN)/nox
	-$(BIN)/python -m tests.culprit --seeds 200 --write
	-$(BIN)/python -m tests.mutants --sample 600 --seed 1 --record build/nightly/mutants.jsonl
	$(BIN)/nox -s table

gpu:  ## all that one GPU can show, in minutes; what cannot run here is named. Needs no venv
	$(PYTHON) -m tests.gpu

counts: $(READY)  ## what a launch costs: functions, files, modules, look-ups; lines of code
	$(BIN)/python -m tests.counts

bench: $(READY)  ## the launcher and the training loop against others; writes docs/benchmarks.md
	$(BIN)/python -m benchmarks

coverage: $(READY)  ## which lines the tests enter, those of launches and workers too; twice as long
	$(BIN)/coverage erase
	COVERAGE_PROCESS_START=$(CURDIR)/pyproject.toml $(PYTEST) --ignore tests/test_budgets.py $(TESTS) || true
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage html --quiet
	$(BIN)/coverage report

docs: $(READY)  ## the site, in build/site; pages that are made from tables are made anew
	$(BIN)/python -m docs.generate
	$(BIN)/python -m mkdocs build --quiet
	@echo build/site/index.html

lint: $(READY)  ## style, formatting, types, and which room imports which
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo
	$(BIN)/mypy

release-check: $(READY)  ## in a clean clone: the version, the packages, and what they install
	test -z "$$(git status --porcelain)"
	$(MAKE) lint docs
	grep "^## $$($(BIN)/python -c 'import spawnlaunch; print(spawnlaunch.__version__)')" CHANGELOG.md
	rm -rf dist build/release
	$(BIN)/python -m hatchling build
	$(PYTHON) -m venv build/release
	build/release/bin/python -m pip install --quiet --constraint constraints.txt dist/*.whl
	cd build/release && bin/spawnlaunch --version && bin/spawnlaunch --nproc 2 --quiet check

clean:  ## remove what the others have made
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .nox .import_linter_cache

$(RUNS): pyproject.toml constraints.txt  # torch, and what it and we need: nothing of the tests
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --constraint constraints.txt --editable .
	$(BIN)/python -m compileall -q spawnlaunch spawnlaunch/train  # a launch should not pay for it
	touch $@

$(READY): $(RUNS)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'  # which has --group
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --group dev
	touch $@
