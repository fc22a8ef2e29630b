# Everything a contributor runs. Needs make and Python 3.11 or newer; the rest is installed into $(VENV).
#   make demo      see it work on the shipped traces
#   make test      the tests, on all cores
#   make check     what CI runs: lint, types, import rule, generated docs, tests with coverage
#   make site      the documentation, with the notebooks run, into out/docs
#   make notebooks run the notebooks of examples/
#   make bench     speed and memory of the interval algebra and of matching

PYTHON ?= python3
VENV ?= .venv
PIP := $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check
RUNTIME := $(VENV)/.runtime
DEV := $(VENV)/.dev
SITE := $(VENV)/.site
SAMPLES := ep8-nccl ep8-deepep-overlap ep8-straggler
SIZES := 256 512 1024

.DEFAULT_GOAL := help
.PHONY: help demo test check docs site notebooks samples bench clean

help:
	@sed -n 's/^#   //p' Makefile

$(RUNTIME): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("traceview needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)
	$(PIP) -e .
	@touch $@

$(DEV): $(RUNTIME)
	$(PIP) -e '.[dev]'
	@touch $@

$(SITE): $(DEV)
	$(PIP) -e '.[docs]'
	@touch $@

demo: $(RUNTIME)
	$(VENV)/bin/traceview summary sample_traces/ep8-straggler
	@echo
	$(VENV)/bin/traceview alltoall sample_traces/ep8-straggler
	@echo
	$(VENV)/bin/traceview stragglers sample_traces/ep8-straggler
	@echo
	@mkdir -p out
	$(VENV)/bin/traceview report sample_traces/ep8-straggler -o out/report.html
	@echo "Open out/report.html in a browser: the same and more, with figures."
	@echo
	@echo "Next, on these or on your own traces:"
	@echo "  $(VENV)/bin/traceview overlap sample_traces/ep8-deepep-overlap --by axis,phase"
	@echo "  $(VENV)/bin/traceview experts sample_traces/ep8-nccl -f csv"
	@echo "  $(VENV)/bin/traceview --help"

# one polars thread per worker: more would only compete for the cores
test: $(DEV)
	POLARS_MAX_THREADS=1 $(VENV)/bin/python -m pytest -n auto

check: $(DEV)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy traceview tests docs/generate.py
	$(VENV)/bin/lint-imports
	$(VENV)/bin/python docs/generate.py --check
	$(VENV)/bin/python -m pytest -n auto --cov --cov-report=term

docs: $(DEV)
	$(VENV)/bin/python docs/generate.py

notebooks: $(SITE)
	$(VENV)/bin/python docs/notebooks.py

site: notebooks
	@mkdir -p out/example
	$(VENV)/bin/traceview report sample_traces/ep8-straggler -o out/example/report.html
	$(VENV)/bin/python -m sphinx --fail-on-warning --keep-going --quiet -b html docs out/docs
	@echo "Open out/docs/index.html in a browser."

samples: $(RUNTIME)
	for preset in $(SAMPLES); do $(VENV)/bin/traceview synth $$preset -o sample_traces/$$preset || exit 1; done
	for size in $(SIZES); do $(VENV)/bin/traceview synth scaling-$$size -o sample_traces/scaling/$$size || exit 1; done

bench: $(RUNTIME)
	$(VENV)/bin/python benchmarks/intervals.py
	$(VENV)/bin/python benchmarks/collectives.py
	$(VENV)/bin/python benchmarks/nsys.py

clean:
	rm -rf $(VENV) build dist out docs/notebooks *.egg-info .coverage .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
