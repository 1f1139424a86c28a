# Each target sets up what it needs in .venv; a bare machine with Python 3.11 or newer is enough.

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= python3
DATA ?= ../shared/data
# What fits two cores in an hour: the methods that learn in closed form. The others, one by one or
# on a GPU: see the commands in benchmarks/README.md.
CLOSED := clbruno,clbruno-oracle,ncm,lda,shrunk,shrunk-sqrt,fecam,fetril,joint-logistic,ranpac
export OMP_NUM_THREADS ?= 1

# Chromium and axe-core look at the report and at the documentation.
BROWSER := .browser
AXE := 4.14.1
AS_ROOT := $(if $(filter 0,$(shell id -u)),,sudo)

.PHONY: demo test lint docs browser nightly benchmarks clean

demo: $(VENV)/.user
	$(BIN)/clbruno demo

test: lint browser
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not nightly"
	$(BIN)/python -m pytest --doctest-modules src/clbruno -p no:cacheprovider

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/.dev
	$(BIN)/mkdocs build --strict --quiet
	@echo "site: $(CURDIR)/site/index.html"

browser: $(BROWSER)/.ready-$(AXE)

nightly: $(VENV)/.dev
	$(BIN)/python -m pytest -m nightly

benchmarks: $(VENV)/.dev
	$(BIN)/python -m benchmarks all --data $(DATA) --methods $(CLOSED) --jobs 2 --seconds 3600
	$(BIN)/python -m benchmarks report

clean:
	rm -rf $(VENV) $(BROWSER) site build dist src/*.egg-info

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# The model's own dependencies and those of the pictures.
$(VENV)/.user: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[report]'
	touch $@

# The same and everything that the tests use.
$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@ $(VENV)/.user

$(BROWSER)/.ready-$(AXE):
	@command -v chromium >/dev/null && command -v npm >/dev/null || $(AS_ROOT) apt-get update -qq
	@command -v chromium >/dev/null || $(AS_ROOT) apt-get install -y -qq chromium
	@command -v npm >/dev/null || $(AS_ROOT) apt-get install -y -qq npm
	mkdir -p $(BROWSER)
	npm install --prefix $(BROWSER) --no-save --no-audit --no-fund --ignore-scripts --silent axe-core@$(AXE)
	touch $@
