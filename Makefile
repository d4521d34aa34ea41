PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: help grow test lint clean
.NOTPARALLEL:

help:
	@echo "make grow   grow a small network on handwritten digits, about a minute"
	@echo "make test   run the test-suite"
	@echo "make lint   ruff and mypy"
	@echo "make clean  remove the environment and caches"

grow: $(VENV)/.run
	$(BIN)/meristem grow --report

# A passive wait keeps two-threaded torch from collapsing when another process wants the cores.
test: $(VENV)/.dev
	OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m pytest

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf $(VENV) .hypothesis .mypy_cache .pytest_cache .ruff_cache

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# Stamps: installed once, again only when the requirements change. The dev install contains the plain one.
$(VENV)/.run: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) -e '.[report]'
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) -e '.[dev,images,onnx,report,tensorboard]'
	@touch $@ $(VENV)/.run
