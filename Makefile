# Every task by name: `make help`.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
TOOLS := build/tools
UV := $(or $(shell command -v uv 2>/dev/null),$(TOOLS)/bin/uv)
VENV := .venv
PY := $(VENV)/bin/python
SYNCED := $(VENV)/.synced
CODE := operator e2e benchmarks images/vllm-sim
CRD_FOLDERS := crds charts/specfleet/files/crds
REQUIREMENTS := images/operator/requirements.txt
EXPORT = $(UV) export --quiet --frozen --no-dev --no-emit-project --no-header --no-annotate
PYTEST_ARGS ?=
E2E_ARGS ?=
CLIENT_ARGS ?=

# --- help --------------------------------------------------------------------------------------------------------------

.PHONY: help
help: ## Say what there is to do
	@awk 'BEGIN {FS = ":.*## "} /^[a-zA-Z0-9_-]+:.*## / {printf "  \033[1m%-16s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# --- the road ----------------------------------------------------------------------------------------------------------

.PHONY: demo
demo: venv ## From kubectl apply to promoted, and back when acceptance decays (DECAY=none: no decay, no roll-back)
	$(PY) -m e2e.road.demo

.PHONY: e2e
e2e: venv ## What the operator must show on a real cluster (E2E_ARGS='-m "not long"': the short scenarios only)
	$(PY) -m pytest e2e/scenarios -s $(E2E_ARGS)

.PHONY: cluster-up
cluster-up: venv ## Start the test cluster (CLUSTER=embedded|existing|kind)
	$(PY) -m e2e.cluster up

.PHONY: cluster-down
cluster-down: ## Remove the test cluster; what was built stays cached
	$(PYTHON) -m e2e.cluster down

# --- tests -------------------------------------------------------------------------------------------------------------

.PHONY: test
test: test-parts ## Unit, property and integration tests (the real API server, Prometheus and Alertmanager are built first)
	$(PY) -m pytest $(PYTEST_ARGS)

# Before the tests, so that the minutes of the first build are seen passing.
.PHONY: test-parts
test-parts: venv
	$(PY) -c "from e2e.cluster import build, parts, wheels; wheels.install_wheels(); \
		build.build_parts([*parts.CONTROL_PLANE_PARTS, parts.PROMETHEUS, parts.ALERTMANAGER])"

.PHONY: test-unit
test-unit: venv ## Only the tests that need no API server
	$(PY) -m pytest -m "not integration" $(PYTEST_ARGS)

.PHONY: engine
engine: venv ## Install the real engine for CPU (vLLM 0.32, about 5 GB, outside the tree)
	$(PY) -m e2e.engine.set_up

.PHONY: test-engine
test-engine: engine ## The engine rules against the real engine (about 15 minutes on two cores)
	$(PY) -m pytest e2e/engine $(PYTEST_ARGS)

.PHONY: conformance
conformance: engine ## One suite of the engine's contract against the simulated and the real engine
	$(PY) -m e2e.engine.conformance $(PYTEST_ARGS)

.PHONY: e2e-engine
e2e-engine: engine ## The operator with real vLLM pods on the test cluster, all gates as they are (about 30 min, 16 GiB; E2E_MORE=1: 7 min more)
	$(PY) -m pytest e2e/engine_cluster -s $(E2E_ARGS)

.PHONY: check
check: format-check lint types layers crds-check docs-check lock-check chart-lint ## Everything but the tests

.PHONY: format
format: venv ## Format the code
	$(VENV)/bin/ruff format $(CODE) tests
	$(VENV)/bin/ruff check --fix $(CODE) tests

.PHONY: format-check
format-check: venv
	$(VENV)/bin/ruff format --check $(CODE) tests

.PHONY: lint
lint: venv
	$(VENV)/bin/ruff check $(CODE) tests

.PHONY: types
types: venv
	$(VENV)/bin/mypy $(CODE)
	$(VENV)/bin/mypy tests

.PHONY: layers
layers: venv
	$(VENV)/bin/lint-imports --no-logo

.PHONY: crds-check
crds-check: venv
	$(PY) -m specfleet.api.crd check $(CRD_FOLDERS)

.PHONY: docs-check
docs-check: venv
	$(PY) -m specfleet.api.reference check docs/reference/api.md
	$(PY) -m specfleet.engine.reference --check docs/reference/engine-rules.md

.PHONY: lock-check
lock-check: venv
	$(UV) lock --check --quiet
	$(EXPORT) | diff -q - $(REQUIREMENTS) >/dev/null || { echo "$(REQUIREMENTS) is not what uv.lock says: run make lock" >&2; exit 1; }

.PHONY: chart-lint
chart-lint: venv ## Lint and render the chart without a helm binary
	$(PY) -m pytest -q -m "not integration" tests/chart

# --- what is generated -------------------------------------------------------------------------------------------------

.PHONY: crds
crds: venv ## Write the CRDs from the models
	$(PY) -m specfleet.api.crd write $(CRD_FOLDERS)

.PHONY: docs
docs: venv ## Write the reference pages from the code
	$(PY) -m specfleet.api.reference write docs/reference/api.md
	$(PY) -m specfleet.engine.reference > docs/reference/engine-rules.md

.PHONY: lock
lock: venv ## Lock the dependencies and export those of the operator's image
	$(UV) lock
	$(EXPORT) > $(REQUIREMENTS)

# --- images ------------------------------------------------------------------------------------------------------------

.PHONY: images
images: venv ## Build both images into the running test cluster
	$(PY) -m e2e.cluster image localhost/specfleet:dev . --file images/operator/Dockerfile
	$(PY) -m e2e.cluster image localhost/vllm-sim:0.32.0 images/vllm-sim

.PHONY: image-wheels
image-wheels: $(TOOLS)/bin/pip ## Fetch the wheels of the operator's image, so that its build needs no network
	rm -rf build/wheelhouse
	$(TOOLS)/bin/pip download --quiet --disable-pip-version-check --only-binary=:all: --require-hashes \
		--python-version 3.11 --implementation cp $(foreach tag,manylinux_2_28 manylinux_2_17 manylinux2014,--platform $(tag)_$(shell uname -m)) \
		-r $(REQUIREMENTS) -d build/wheelhouse

# --- benchmarks --------------------------------------------------------------------------------------------------------

.PHONY: bench-lint
bench-lint: venv ## How long linting 1,000 files takes
	$(PY) -m benchmarks.lint

.PHONY: bench-decisions
bench-decisions: venv ## The watch against the rules of other controllers, on the same traces with a known truth
	$(PY) -m benchmarks.decisions

.PHONY: bench-evidence
bench-evidence: venv ## How often the benchmark is wrong, and how often it finds what is there, at known truth
	$(PY) -m benchmarks.evidence

.PHONY: bench-client
bench-client: venv ## How punctual the benchmark's client is, and whether a starved one is found out (a quiet machine; CLIENT_ARGS=--real)
	$(PY) -m benchmarks.client $(CLIENT_ARGS)

# --- environment -------------------------------------------------------------------------------------------------------

.PHONY: venv
venv: $(SYNCED) ## Make .venv from the lock file

$(SYNCED): pyproject.toml uv.lock | $(UV)
	$(UV) sync --frozen
	touch $@

$(TOOLS)/bin/pip:
	$(PYTHON) -m venv $(TOOLS)

$(TOOLS)/bin/uv: $(TOOLS)/bin/pip
	$(TOOLS)/bin/pip install --quiet --disable-pip-version-check uv

.PHONY: clean
clean: ## Remove what was built here (the cluster's cache stays)
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
