# The commands of a working day. Each makes the virtual environment it needs when there is none.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: run test full clients stress bench lint clean

run: $(READY)  ## train the bundled model on two pinned workers
	$(BIN)/python -m spawnlaunch --nproc 2 -- --task language

test: $(READY)  ## the tests: real processes, sockets, and Slurm where it is installed
	$(BIN)/python -m pytest

full: $(READY)  ## the same, and the large matrices
	$(BIN)/python -m pytest -m 'not stress and not clients'

clients: $(READY)  ## scripts of other training libraries, which are installed for it
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[clients]'
	$(BIN)/python -m pytest tests/clients -m clients

stress: $(READY)  ## kill launches and training runs, and let workers write, at random, hundreds of times
	$(BIN)/python -m tests.stress
	$(BIN)/python -m tests.stress.writing
	$(BIN)/python -m tests.stress.saying
	$(BIN)/python -m pytest -m stress

bench: $(READY)  ## the launcher and the training loop against others; writes docs/benchmarks.md
	$(BIN)/python -m benchmarks

lint: $(READY)  ## style, formatting and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	$(BIN)/python -m compileall -q spawnlaunch spawnlaunch/train  # a launch should not pay for it
	touch $@
