# make demo    trains the digit classifier, in a virtual environment of its own
# make test    everything CI checks (ORACLE=0: without comparing networks with PyTorch)
# make check   the quick part of it
# make test-mock  the Python tests on the mock accelerator (DEVICE=mock:host_control_flow and so on)
# make bench   workloads beside other libraries where installed; writes docs/benchmarks
#              (ARGS="--quick", ARGS="--only softmax"; ARGS="--models" for whole models)
# make figures  the README's five figures and its picture; writes docs/benchmarks/figures.*
# make bench-peers         installs those libraries in .venv-bench, which make bench then uses
# make bench-sensitivity  halves and doubles each tuning parameter; names rows that this makes faster
# make bench-instructions  counts instructions and compares them with the table
# make bench-neighbour  rows beside a process of another session that keeps a processor busy
# make bench-alignment  rows with operands 16 bytes after the start of a cache line
# make bench-cachesim  counts cache misses and compares them with those that nothing can avoid
#              (ARGS="--check" makes a flagged row an error, ARGS="--only softmax")
# make dump OUT=FILE  writes what is compiled for a list of graphs, to compare before and after a refactoring
# make stubs   writes python/girih/_girih.pyi
# make docs    writes docs/ops.md
# make docs-site  builds the documentation with the API reference: docs-out/html/index.html

PYTHON ?= python3
ORACLE ?= 1
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
CARGO ?= cargo
# The extension is PyO3's and links no libpython when built as a module, so its tests are Python's.
EXCLUDE := $(if $(wildcard crates/python),--exclude girih-python)
SMOKE := $(VENV)/smoke
PYTEST = $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal
BENCH := $(if $(wildcard .venv-bench/.peers),.venv-bench,$(VENV))
TORCH_CPU := https://download.pytorch.org/whl/cpu

.PHONY: all demo test test-mock check bench figures bench-peers bench-instructions bench-sensitivity bench-neighbour bench-alignment bench-cachesim dump stubs docs docs-site develop rust-check rust-test python-check python-test smoke clean
all: check

# Environments.

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit("girih needs Python 3.10 or later, this is " + sys.version.split()[0] if sys.version_info < (3, 10) else 0)'
	@echo "Making a virtual environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.build: $(BIN)/python requirements-build.txt
	@echo "Installing what builds the extension (seconds)"
	@$(PIP) install -r requirements-build.txt
	@touch $@

$(VENV)/.dev: $(VENV)/.build requirements-dev.txt
	$(PIP) install -r requirements-dev.txt
	@touch $@

# The tests compare networks with PyTorch. Its own index has it without CUDA, a tenth of the size; on
# machines that do not reach that index it comes with CUDA, some gigabytes, which pip is not to keep twice.
$(VENV)/.oracle: $(VENV)/.dev requirements-oracle.txt
	@echo "Installing PyTorch, which the tests compare with, once; ORACLE=0 leaves those tests out."
	@$(PIP) install --no-cache-dir --retries 1 --index-url $(TORCH_CPU) -r requirements-oracle.txt 2> /dev/null \
		|| $(PIP) install --no-cache-dir -r requirements-oracle.txt
	@touch $@

$(VENV)/.docs: $(BIN)/python requirements-docs.txt
	$(PIP) install -r requirements-docs.txt
	@touch $@

# Builds the extension in release mode and installs the package for editing. Cargo knows what has
# changed; running it again is cheap.
develop: $(VENV)/.build
	@echo "Compiling girih in release mode (about 4 minutes the first time, seconds if nothing changed)"
	@VIRTUAL_ENV=$(abspath $(VENV)) $(BIN)/maturin develop --release --quiet

demo: develop
	@$(BIN)/python examples/digits.py

# Checks.

rust-check:
	@echo "Checking the Rust code (about 3 minutes the first time)"
	@$(CARGO) fmt --all --check
	@$(CARGO) clippy --quiet --workspace --all-targets -- -D warnings

rust-test: rust-check
	@echo "Building the Rust documentation (about a minute)"
	@RUSTDOCFLAGS="-D warnings" $(CARGO) doc --quiet --workspace --no-deps
	@echo "Compiling and running the Rust tests (about 15 minutes the first time, half of it compiling)"
	@$(CARGO) test --quiet --workspace $(EXCLUDE)

python-check: $(VENV)/.dev
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .

python-test: python-check develop $(if $(filter 0,$(ORACLE)),,$(VENV)/.oracle)
	@echo "Checking stubs and types (about a minute)"
	@$(BIN)/python scripts/stubs.py --check
	@$(BIN)/mypy
	@$(BIN)/python -m mypy.stubtest girih --mypy-config-file pyproject.toml --allowlist tests/python/stubtest-allowlist.txt
	@echo "Running the Python tests (about 5 minutes)"
	@$(PYTEST)

# Tests of the host's memory and of its programs on disk are left out: tests/python/conftest.py.
test-mock: DEVICE = mock
test-mock: develop $(VENV)/.dev
	@GIRIH_DEVICE=$(DEVICE) $(PYTEST)

smoke: develop
	@mkdir -p $(SMOKE)
	@$(BIN)/python examples/digits.py --epochs 2 --out $(SMOKE) > $(SMOKE)/log
	@grep -q '^accuracy' $(SMOKE)/log && test -s $(SMOKE)/loss.svg && test -s $(SMOKE)/step-graph.svg

check: rust-check python-check
	@echo "Compiling and running the crates' unit tests (about 8 minutes the first time)"
	@$(CARGO) test --quiet --workspace --lib $(EXCLUDE)

test: rust-test python-test smoke docs-site
	@echo "All checks passed."

bench: $(VENV)/.dev
	VIRTUAL_ENV=$(abspath $(BENCH)) $(BIN)/maturin develop --release --quiet
	@$(BENCH)/bin/python -m benches $(ARGS)
	@$(CARGO) bench --quiet -p girih --bench overhead
	@$(CARGO) bench --quiet -p girih-mock --bench pipeline

figures: $(VENV)/.dev
	VIRTUAL_ENV=$(abspath $(BENCH)) $(BIN)/maturin develop --release --quiet
	@$(BENCH)/bin/python -m benches --headline --out docs/benchmarks $(ARGS)

# PyTorch without CUDA, a tenth of the size, where its index can be reached.
bench-peers: requirements-bench.txt
	$(PYTHON) -m venv .venv-bench
	.venv-bench/bin/python -m pip install --quiet "$$(grep ^torch $<)" --index-url $(TORCH_CPU) || true
	.venv-bench/bin/python -m pip install --quiet -r $<
	@touch .venv-bench/.peers

bench-sensitivity: develop
	@$(BIN)/python -m benches.sensitivity $(ARGS)

bench-instructions:
	@$(PYTHON) -m benches.instructions $(ARGS)

bench-neighbour bench-alignment: $(VENV)/.dev
	VIRTUAL_ENV=$(abspath $(BENCH)) $(BIN)/maturin develop --release --quiet
	@$(BENCH)/bin/python -m benches.$(@:bench-%=%) $(ARGS)

bench-cachesim: develop $(VENV)/.dev
	@$(BIN)/python -m benches.cachesim $(ARGS)

dump:
	@GIRIH_DUMP=$(abspath $(or $(OUT),dump.txt)) $(CARGO) test --quiet -p girih-cpu --lib dump -- --nocapture

stubs: develop
	$(BIN)/python scripts/stubs.py

docs:
	GIRIH_UPDATE=1 $(CARGO) test --quiet -p girih-ir --test ops_md

# Warnings and links that lead nowhere are errors. Nothing is fetched.
docs-site: develop $(VENV)/.docs
	@$(BIN)/python -m scripts.reference --site --out docs-out

clean:
	rm -rf $(VENV) .venv-bench demo-out bench-out docs-out
	$(CARGO) clean
