# Every target works in a fresh clone; `make` alone lists them.
BIN := .venv/bin
# One worker more than cores: many tests wait for a server that they have started.
JOBS ?= 3
PYTEST = $(BIN)/pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder
# Images of Python forbid it to keep what it compiled: each worker and each server of a test would compile all anew.
unexport PYTHONDONTWRITEBYTECODE
CHECKS = $(BIN)/ruff check && $(BIN)/ruff format --check && $(BIN)/mypy && $(BIN)/lint-imports --no-logo

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup console demo test test-rigs test-wide test-gpu wheels test-slurm lint format soak bench compiled dist lock clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Make .venv from the lock (again only when something changed)
	@scripts/setup

console: ## Build the console: for `yard open` after `make demo`, or where `make setup` could not
	@scripts/setup console

demo: ## Show gpuyard at work on this machine; installs what runs it, and nothing to develop it with
	@scripts/setup run
	@$(BIN)/yard demo

# Collecting once beside the checks writes the assertions that pytest rewrites; else each worker rewrites all of them.
test: setup ## Style, types, layers and every test that needs no server; about six minutes
	$(BIN)/pytest -n 0 -qq --collect-only >/dev/null & $(CHECKS); code=$$?; wait; exit $$code
	$(PYTEST) -m "not soak and not rig" --ignore tests/hardware

test-rigs test-wide soak: JOBS = 2
test-rigs: setup ## The tests over real servers (Slurm, PostgreSQL, podman, Prometheus, rsyslog) and the long ones; CI runs them too
	$(PYTEST) -m "rig and not wide and not soak"

test-wide: setup ## The rigs that are seldom touched (pictures, every extra, a live yard's books, a newer Python); before a release
	$(PYTEST) -m "wide and not soak"

lint: setup ## Style, types and layers
	$(CHECKS)

format: setup ## Rewrite the code in the project's style
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

soak: setup ## The long tests (GPUYARD_SOAK=1, marker soak)
	GPUYARD_SOAK=1 $(PYTEST) --timeout 0 -m soak

test-slurm: setup ## The tests over real Slurm daemons alone (SLURM_SOAK=1: the long ones too)
	$(BIN)/pytest -n 0 $(if $(SLURM_SOAK),-m "slurm",-m "slurm and not soak") tests/contract tests/e2e tests/slurm tests/unit/rigs

wheels: setup ## What test-gpu needs where there is no package index, in wheels/
	@scripts/wheels

# A folder that `make wheels` has filled is taken where .venv is not there yet.
test-gpu: export WHEELS ?= $(wildcard wheels)
test-gpu: setup ## The tests that need an NVIDIA GPU (GPU_PYTHON: a Python with PyTorch; GPU_SETTINGS=change: MIG, too)
	$(BIN)/pytest -n 0 -rs tests/hardware

bench: setup ## Run every benchmarks/bench_*.py
	@set -e; for file in benchmarks/bench_*.py; do echo "== $$file"; $(BIN)/python "$$file"; done

compiled: setup ## Compile the core into build/compiled (wants a C compiler)
	$(BIN)/python scripts/compile.py

dist: ## Wheel and sdist in dist/, the console in both, checked as a package index would
	@scripts/dist

lock: ## Rewrite requirements/constraints.txt (UPGRADE=1 takes newer releases)
	@set -e; tmp=$$(mktemp -d); trap 'rm -rf "$$tmp"' EXIT; \
	$${PYTHON:-python3} -m venv "$$tmp" && "$$tmp/bin/pip" -qq install uv && \
	"$$tmp/bin/uv" pip compile -q pyproject.toml --extra dev --universal --python-version 3.11 \
	    --generate-hashes --no-header \
	    $(if $(UPGRADE),--upgrade) -o requirements/constraints.txt && \
	"$$tmp/bin/uv" pip compile -q requirements/dist.in --universal --python-version 3.11 \
	    --generate-hashes --no-header --no-annotate \
	    $(if $(UPGRADE),--upgrade) -o requirements/dist.txt

clean: ## Remove the environment, caches and builds
	rm -rf .venv build dist console/node_modules src/gpuyard/console .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
