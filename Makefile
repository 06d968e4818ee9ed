# Everything a person types: `make demo` and `make test` first. Each target makes the environment it needs, once.
PYTHON ?= python3
PY := .venv/bin/python
# After `make hashed` nothing more is fetched: everything is there, its hash was checked, and so was that of what builds the package.
HASHED = $(shell test ! -e .venv/.hashed || echo --no-index --no-build-isolation)
PIP = $(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt $(HASHED)
# Temporary files go to the clone where the system's folder is not writable.
export TMPDIR := $(shell if [ -w "$${TMPDIR:-/tmp}" ]; then echo "$${TMPDIR:-/tmp}"; else mkdir -p .tmp && echo "$(CURDIR)/.tmp"; fi)

.DEFAULT_GOAL := help
.PHONY: help demo explore test test-slow test-browser test-slurm torture audit hashed lint format wheel typed bench docs pictures notebooks results clean
.NOTPARALLEL: # two installs at once into one environment would break it

help: ## list what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' Makefile

# The stamp holds the clone's folder: an environment that was moved or copied along would import the other clone's source.
ifneq ($(shell cat .venv/.base 2>/dev/null),$(shell pwd -P))
.PHONY: .venv/.base
endif

# A stamp is written last, so an interrupted or failed install is taken up again. So is a half-made environment (no pip in it).
.venv/.base: pyproject.toml constraints.txt hatch_build.py src/continua/native/build.py $(wildcard src/continua/native/csrc/*)
	@$(PYTHON) -c 'import sys; sys.exit("Continua needs Python 3.11 or newer, and this is %d.%d. Try: make PYTHON=python3.11 ..." % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	@echo "Installing Continua into .venv (a few minutes the first time) ..."
	@{ { $(PY) -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear .venv; } && $(PIP) -e .; } & pid=$$!; s=0; while kill -0 $$pid 2>/dev/null; do sleep 1; s=$$((s+1)); \
	  [ $$((s % 4)) -ne 0 ] || echo "  installing, $$s s"; done; wait $$pid
	@test -f src/continua/native/libcontinua.so || echo "No C++ compiler was found: Continua computes by PyTorch's own operations, several times slower (continua doctor)."
	@pwd -P > $@

# Every pinned package, each file checked against its hash. The targets after it find all they need, and are not let onto the network.
.venv/.hashed: hashes.txt
	@$(PY) -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear .venv
	$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r hashes.txt
	@$(PY) -c 'import torch' || { echo "PyTorch as pinned needs packages that hashes.txt has not: give pip its build for the CPU (FAQ), or leave out make hashed"; exit 1; }
	@touch $@

hashed: .venv/.hashed ## install every pinned package into .venv, checked against hashes.txt; nothing is fetched after it

# One stamp per extra: .venv/.test, .venv/.docs, ...
.venv/.%: .venv/.base
	$(PIP) -e '.[$*]'
	@touch $@

demo: .venv/.base ## train, compare and look into three networks on the bundled digits (under 5 minutes)
	$(PY) -m continua demo --out runs/demo

explore: .venv/.explore ## look into a network in the browser: its depth, filters and weights (Ctrl-C ends it)
	$(PY) -m continua explore

test: .venv/.test ## the test suite (under 10 minutes on two cores)
	$(PY) -m pytest -n 2 -m 'not slow and not slurm and not browser'

# pytest answers 5 when it found nothing to run: right only as long as no test is marked slow.
test-slow: .venv/.test .venv/.docs ## what takes longer (under 30 minutes)
	$(PY) -m pytest -n 2 -m 'slow and not slurm and not browser' || { status=$$?; \
	  [ $$status -eq 5 ] && ! grep -rq 'mark\.slow' tests --include='*.py' && echo "No test is marked slow yet." || exit $$status; }

test-browser: .venv/.test .venv/.explore .venv/.browser ## the explorer in a real browser (needs Debian's chromium; about 2 minutes)
	$(PY) -m pytest -m browser tests/browser

# The cluster goes down whatever the tests say; what the tests say is what counts.
test-slurm: .venv/.test ## sweeps on a real Slurm cluster of one node (Debian, as root; about 10 minutes)
	scripts/slurm-local up
	$(PY) -m pytest -m slurm tests/slurm; status=$$?; scripts/slurm-local down; exit $$status

torture: .venv/.test ## commands that are killed, on a disk that fails at every file operation, compared bit for bit (MINUTES=10, SEED=...)
	$(PY) scripts/torture.py --minutes $(or $(MINUTES),10) $(if $(SEED),--seed $(SEED))

audit: .venv/.base ## known vulnerabilities of the pinned packages (asks api.osv.dev)
	$(PY) scripts/audit.py

lint: .venv/.lint .venv/.test ## formatting, lint rules and types
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m basedpyright

format: .venv/.lint ## rewrite files in the project's format
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

wheel: .venv/.base ## build the wheel into dist/ and try it in a new environment in another folder (a minute)
	scripts/try-wheel

# The type checker looks for our dependencies in the environment that is active.
typed: .venv/.lint ## how much of the public names is typed (a score; scripts/typed --list shows what is not)
	PATH="$(CURDIR)/.venv/bin:$$PATH" $(PY) scripts/typed

bench: .venv/.bench ## side-by-side timings against peers (idle machine, several minutes)
	@for script in benchmarks/[a-z]*.py; do echo "== $$script"; $(PY) "$$script" || exit 1; done

docs: .venv/.docs ## build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict
	@echo "open site/index.html"

pictures: .venv/.docs ## draw the pictures of the README and the documentation again
	@for script in docs/pictures/[a-z]*.py; do $(PY) "$$script" || exit 1; done

notebooks: .venv/.test ## run the notebooks of the documentation and keep their outputs
	$(PY) docs/notebooks/run.py

results: .venv/.base ## write docs/results.md from results/*/*.json, with its pictures
	$(PY) -c 'from continua.report.results import write_results_page; write_results_page()'

clean: ## remove the environment and everything built (runs/ stays)
	rm -rf .venv .tmp site build dist .pytest_cache .ruff_cache .hypothesis src/continua/native/libcontinua.so
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
