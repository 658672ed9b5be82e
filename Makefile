# Makes the Python environment and calls nox in it; what a session does stands in noxfile.py.

PYTHON ?= python3
VENV := .venv
STAMP := $(VENV)/.installed

.PHONY: help install sim test clean
.DEFAULT_GOAL := help

help:
	@echo "make sim      simulate the quickstart experiment and write its report"
	@echo "make test     lint, types, tests and benches"
	@echo "make install  only make the environment in $(VENV)"
	@echo "make clean    remove the environment and the files that runs left here"
	@echo "After make install, '$(VENV)/bin/nox -l' lists every session and '$(VENV)/bin/mrc --help' every command."

install: $(STAMP)

sim: $(STAMP)
	@$(VENV)/bin/nox -s sim

test: $(STAMP)
	@$(VENV)/bin/nox -s lint types tests tb

# What is missing is named before anything is made.
$(STAMP): pyproject.toml
	@command -v $(PYTHON) >/dev/null || { \
	  echo "$(PYTHON) is missing. Get it: apt-get install python3 python3-venv" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "$(PYTHON) must be 3.11 or newer, is $$($(PYTHON) -V 2>&1). Get it: apt-get install python3.11 python3.11-venv," \
	       "then call: make PYTHON=python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	  echo "$(PYTHON) cannot make environments. Get it: apt-get install python3-venv" >&2; exit 1; }
	@command -v c++ >/dev/null || { \
	  echo "A C++ compiler (c++) is missing. Get it: apt-get install g++" >&2; exit 1; }
	@$(VENV)/bin/python -c 'import sys, pip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "Making $(VENV)"; $(PYTHON) -m venv --clear $(VENV) || { rm -rf $(VENV); exit 1; }; }
	@echo "Installing the project and its tools into $(VENV); this takes a minute or two"
	@$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]' || { \
	  echo "The installation did not finish; its reason stands above. The same command continues it." >&2; exit 1; }
	@$(VENV)/bin/python -m mrc_host.compiler
	@touch $(STAMP)

clean:
	rm -rf $(VENV) runs bench.json synth.json .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
