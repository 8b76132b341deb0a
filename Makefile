# Two commands on a fresh machine with Python 3.11 to 3.13:  make demo   make test
# Each makes .venv on first use, from requirements.lock (versions and hashes).

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed
# A version manager's shim may exist and still not run, so each candidate is asked for its version.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3 python; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null && { echo $$p; break; }; done)
PYTEST := $(PY) -m pytest -n 2 --dist worksteal

.PHONY: help setup ptxas demo test test-full lint format bench prove prove-roads prove-doubles prove-conversions prove-divisors bless cross-host avx512 lock wheel gpu-wheels clean

help: ## the list of commands
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 19

$(STAMP): requirements.lock requirements-models.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "no Python 3.11, 3.12 or 3.13 found; name one: make PYTHON=/path/to/python3.11"; exit 2; }
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	@$(PY) -m pip --version >/dev/null 2>&1 || { echo "this Python has no pip (on Debian: apt-get install python3-venv)"; exit 2; }
	$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements-models.lock
	$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

setup: $(STAMP) ## make .venv and install

ptxas: $(STAMP) ## NVIDIA's assembler from the package index, for tests of GPU code where there is no CUDA toolkit
	$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements-ptxas.lock

demo: $(STAMP) ## build a real model, verify it, run it, show the result
	$(VENV)/bin/repro build golden/digits_mlp/forward.onnx -o build/demo/digits_mlp.repro --inputs golden/digits_mlp/inputs.npz --force
	$(VENV)/bin/repro verify build/demo/digits_mlp.repro/artifact.json
	$(VENV)/bin/repro run build/demo/digits_mlp.repro/artifact.json --inputs golden/digits_mlp/inputs.npz --outputs build/demo/outputs.npz

# Tests start some hundred processes: each would compile all of the package again where nothing may be kept of it.
test test-full: export PYTHONDONTWRITEBYTECODE :=

test: $(STAMP) ## the tests for every change
	$(PYTEST) -m "not full"

test-full: $(STAMP) ## all tests, the long ones too
	$(PYTEST)

lint: $(STAMP) ## ruff, formatting, types
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/pyright

format: $(STAMP) ## rewrite the sources in the house's format
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

bench: $(STAMP) ## speed, memory and build time beside PyTorch and ONNX Runtime; elementary functions; none of it is a test
	$(VENV)/bin/repro bench
	$(PY) -m benchmarks.elementary

prove: $(STAMP) ## elementary functions in f32, every input: make prove [FUNCTION=tanh]
	$(PY) -m proofs $(FUNCTION)

prove-roads: $(STAMP) ## that other roads to f32 functions give the proven results, every input: [FUNCTION=tanh]
	$(PY) -m proofs.roads $(FUNCTION)

prove-doubles: $(STAMP) ## worst errors of the f64 functions, over 10^8 points each: [FUNCTION=tanh]
	$(PY) -m proofs.doubles $(FUNCTION)

prove-conversions: $(STAMP) ## that f32 is rounded to each narrow float as f64 is, every input
	$(PY) -m proofs.conversions

prove-divisors: $(STAMP) ## that quotients by one divisor are right, every pair of significands
	$(PY) -m proofs.divisors

bless: $(STAMP) ## make the golden manifests anew, by the tool
	$(PY) golden/bless.py

cross-host: $(STAMP) ## build digits_mlp in an AArch64 Python under qemu-user and compare the trees
	.ci/cross-host

avx512: $(STAMP) ## run the tests' AVX-512 code on an emulated computer and compare bytes (Debian; a quarter of an hour)
	$(PY) -m tools.avx512 --goldens

lock: ## resolve requirements.lock again (needs uv)
	uv pip compile --universal --python-version 3.11 --extra dev --generate-hashes --no-header --no-emit-index-url \
		pyproject.toml -o requirements.lock
	uv pip compile --universal --python-version 3.11 --group models --no-deps --generate-hashes --no-header \
		--no-annotate --no-emit-index-url -o requirements-models.lock
	uv pip compile --universal --python-version 3.11 --group ptxas --no-deps --generate-hashes --no-header \
		--no-annotate --no-emit-index-url -o requirements-ptxas.lock

wheel: $(STAMP) ## build the wheel into dist/
	$(PY) -m build --wheel --no-isolation

WHEELS_FOR ?= 3.12
LACKING ?= $(shell sed -nE 's/^([a-zA-Z0-9_-]+)==.*/\1/p' requirements.lock)
gpu-wheels: wheel ## wheels for a GPU machine without a network: [WHEELS_FOR=3.12] [LACKING="llvmlite rfc8785", if it has the rest]
	rm -rf build/gpu-wheels && mkdir -p build/gpu-wheels && cp dist/repro-*.whl build/gpu-wheels
	awk -v names="$(LACKING)" 'BEGIN { split(names, list, " "); for (n in list) wanted[list[n]] } \
		/^[a-zA-Z0-9]/ { split($$1, name, "=="); taken = name[1] in wanted } taken' requirements.lock > build/gpu-wheels/wanted.txt
	$(PY) -m pip download --quiet --disable-pip-version-check --dest build/gpu-wheels --only-binary=:all: --no-deps \
		--python-version $(WHEELS_FOR) --implementation cp --platform manylinux2014_x86_64 \
		$(foreach glibc,28 27 17,--platform manylinux_2_$(glibc)_x86_64) --require-hashes --requirement build/gpu-wheels/wanted.txt
	@du -sh build/gpu-wheels

clean: ## remove what builds made; the environment stays
	rm -rf build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
