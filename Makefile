# Everything a contributor runs. Needs make and Python 3.11 or newer; the rest is installed into $(VENV).
#   make demo      see it work on the shipped traces
#   make test      the tests
#   make check     what CI runs: lint, types, import rule, generated docs, tests with coverage

PYTHON ?= python3
VENV ?= .venv
PIP := $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check
RUNTIME := $(VENV)/.runtime
DEV := $(VENV)/.dev
SAMPLES := ep8-nccl ep8-deepep-overlap ep8-straggler

.DEFAULT_GOAL := help
.PHONY: help demo test check docs samples bench clean

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

demo: $(RUNTIME)
	$(VENV)/bin/traceview summary sample_traces/ep8-deepep-overlap
	@echo
	$(VENV)/bin/traceview overlap sample_traces/ep8-nccl --by axis,phase
	@echo
	@echo "Next, on these or on your own traces:"
	@echo "  $(VENV)/bin/traceview info sample_traces/ep8-straggler"
	@echo "  $(VENV)/bin/traceview summary sample_traces/ep8-straggler --by step -f csv"
	@echo "  $(VENV)/bin/traceview --help"

test: $(DEV)
	$(VENV)/bin/python -m pytest

check: $(DEV)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy traceview tests docs/generate.py
	$(VENV)/bin/lint-imports
	$(VENV)/bin/python docs/generate.py --check
	$(VENV)/bin/python -m pytest --cov --cov-report=term

docs: $(DEV)
	$(VENV)/bin/python docs/generate.py

samples: $(RUNTIME)
	for preset in $(SAMPLES); do $(VENV)/bin/traceview synth $$preset -o sample_traces/$$preset || exit 1; done

bench: $(DEV)
	$(VENV)/bin/python benchmarks/intervals.py
	$(VENV)/bin/python benchmarks/ingest.py

clean:
	rm -rf $(VENV) build dist out *.egg-info .coverage .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
