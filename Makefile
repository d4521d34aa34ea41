PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: help grow test lint clean
.NOTPARALLEL:

help:
	@echo "make grow   grow a small network on handwritten digits beside a narrow and the full one, two minutes"
	@echo "make test   run the test-suite"
	@echo "make lint   ruff and mypy"
	@echo "make clean  remove the environment and caches"

grow: $(VENV)/.run
	$(BIN)/meristem sweep digits --arms grown,uniform,dense --out runs/digits --report

# One thread each for as many workers as there are cores: most tests are too small for torch to use more.
test: $(VENV)/.dev
	OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m pytest -n auto --dist worksteal

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
