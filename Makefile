# Everything a person types: `make demo` and `make test` first. Each target makes the environment it needs, once.
SHELL := /bin/bash
PYTHON ?= python3
PY := .venv/bin/python
PIP := $(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt
# Temporary files go to the clone where the system's folder is not writable.
export TMPDIR := $(shell if [ -w "$${TMPDIR:-/tmp}" ]; then echo "$${TMPDIR:-/tmp}"; else mkdir -p .tmp && echo "$(CURDIR)/.tmp"; fi)

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow lint format bench docs clean

help: ## list what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

.venv/.base: pyproject.toml constraints.txt
	@echo "Installing Continua into .venv (a few minutes the first time) ..."
	$(PYTHON) -c 'import sys; sys.exit("Continua needs Python 3.11 or newer; this is %d.%d. Try: make PYTHON=python3.11 ..." % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	test -x $(PY) || $(PYTHON) -m venv .venv
	$(PIP) -e .
	@touch $@

# One file per extra marks that it is installed: .venv/.test, .venv/.docs, ...
.venv/.%: .venv/.base
	$(PIP) -e '.[$*]'
	@touch $@

demo: .venv/.base ## run the main job on the embedded data set
	$(PY) -m continua demo --out runs/demo

test: .venv/.test ## the test suite (under 10 minutes on two cores)
	$(PY) -m pytest -n 2 -m 'not slow'

test-slow: .venv/.test ## what takes longer (under 30 minutes)
	$(PY) -m pytest -n 2 -m slow

lint: .venv/.lint .venv/.test ## formatting, lint rules and types
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m basedpyright

format: .venv/.lint ## rewrite files in the project's format
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

bench: .venv/.bench ## side-by-side timings against peers (idle machine, several minutes)
	@for script in benchmarks/*.py; do case "$$(basename "$$script")" in _*) ;; *) echo "== $$script"; $(PY) "$$script" || exit 1;; esac; done

docs: .venv/.docs ## build the documentation into site/
	$(PY) -m mkdocs build --strict --quiet
	@echo "open site/index.html"

clean: ## remove the environment and everything built (runs/ stays)
	rm -rf .venv .tmp site build dist .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
