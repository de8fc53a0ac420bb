# make demo    trains the digit classifier, in a virtual environment of its own
# make test    everything CI checks (ORACLE=0: without comparing networks with PyTorch)
# make check   the quick part of it
# make test-long  the oldest supported Rust, Miri, attacks and random programs that take minutes
#              (ARGS="-k programs")
# make features  lints without the features that are on by default
# make deny    licences, sources and security advisories of the crates that Girih depends on
# make msrv    compiles with the oldest supported Rust
# make miri    runs tests of unsafe code under Miri
# make wheel   builds a wheel and computes with it in an empty environment
# make test-mock  the Python tests on the mock accelerator (DEVICE=mock:host_control_flow and so on)
# make test-mock-part  the part of it that CI runs
# make bench   workloads beside other libraries where installed; writes docs/benchmarks
#              (ARGS="--quick", ARGS="--only softmax"; ARGS="--models" for whole models;
#              ARGS="--sweep" for ordinary operations of all kinds, with --quick or --only, too)
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
# make docs    writes docs/ops.md, docs/sharded-ops.md and docs/names.md
# make golden  writes the expected texts of tests, in crates/*/tests/golden
# make docs-site  builds the documentation with the API reference: docs-out/html/index.html

PYTHON ?= python3
ORACLE ?= 1
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
CARGO ?= cargo
# The extension is PyO3's and links no libpython when built as a module, so its tests are Python's.
EXCLUDE := $(if $(wildcard crates/python),--exclude girih-python --exclude girih-pyo3)
SMOKE := $(VENV)/smoke
# Prints a title before a command, and the seconds that it took after.
TIMED := @scripts/timed.sh
PYTEST = $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal
BENCH := $(if $(wildcard .venv-bench/.peers),.venv-bench,$(VENV))
TORCH_CPU := https://download.pytorch.org/whl/cpu

.PHONY: all demo test test-long test-mock check bench figures bench-peers bench-instructions bench-sensitivity bench-neighbour bench-alignment bench-cachesim dump stubs golden docs docs-site develop rust-check rust-test python-check python-test test-mock-part smoke environment features deny msrv miri wheel clean
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

environment: $(VENV)/.dev $(VENV)/.docs $(if $(filter 0,$(ORACLE)),,$(VENV)/.oracle)

# Builds the extension in release mode and installs the package for editing. Cargo knows what has
# changed; running it again is cheap.
develop: $(VENV)/.build
	$(TIMED) "Compiling girih in release mode (about 4 minutes the first time, seconds if nothing changed)" \
		env VIRTUAL_ENV=$(abspath $(VENV)) $(BIN)/maturin develop --release --quiet

# Without link-time optimisation, which takes longer than the demo gains by it; after a release build
# that build.
DEMO_PROFILE := $(if $(wildcard target/release/lib_girih.so),release,demo)

demo: $(VENV)/.build
	$(TIMED) "Compiling girih (about 4 minutes the first time, seconds if nothing changed)" \
		env VIRTUAL_ENV=$(abspath $(VENV)) $(BIN)/maturin develop --profile $(DEMO_PROFILE) --quiet
	@$(BIN)/python examples/digits.py

# Checks.

rust-check:
	@$(CARGO) fmt --all --check
	$(TIMED) "Checking the Rust code (about 3 minutes the first time)" \
		$(CARGO) clippy --quiet --workspace --all-targets -- -D warnings

rust-test: rust-check
	$(TIMED) "Building the Rust documentation (about a minute)" \
		env RUSTDOCFLAGS="-D warnings" $(CARGO) doc --quiet --workspace --no-deps
	$(TIMED) "Compiling and running the Rust tests (about 10 minutes the first time, most of it compiling)" \
		$(CARGO) test --quiet --workspace $(EXCLUDE) --lib --bins --tests
	$(TIMED) "Running the examples of the Rust documentation (about a minute)" \
		$(CARGO) test --quiet --workspace $(EXCLUDE) --doc
	$(TIMED) "Running random graphs in checked mode (seconds)" \
		env GIRIH_CHECK=1 $(CARGO) test --quiet --workspace $(EXCLUDE) --test suite properties

# The features are `asm` (of girih-cli by default, which enables that of girih and girih-cpu), and
# `extension-module` and `mock` of girih-python, which enables that of girih. rust-check has all of
# them, this row none; tests of girih have `mock`, so its library is checked alone. `programs` are the
# fuzz targets for libFuzzer, which are checked and not linked: that would need a C++ compiler.
features:
	$(TIMED) "Checking the Rust code without default features (about half a minute)" \
		$(CARGO) clippy --quiet --workspace --all-targets --no-default-features -- -D warnings
	@$(CARGO) clippy --quiet -p girih --lib --no-default-features -- -D warnings
	@$(CARGO) clippy --quiet -p girih-fuzz --features programs --bins -- -D warnings

deny:
	$(TIMED) "Checking licences, sources and advisories of dependencies (about a minute the first time)" \
		scripts/deny.sh $(abspath $(VENV))/cargo-deny

MSRV := $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)

msrv:
	@if scripts/toolchain.sh $(MSRV); then \
		scripts/timed.sh "Compiling with Rust $(MSRV) (about 3 minutes the first time)" \
			$(CARGO) +$(MSRV) check --quiet --workspace --target-dir target/msrv; \
	else \
		echo "Rust $(MSRV) cannot be installed: only clippy's incompatible_msrv checks that it suffices"; \
	fi

# The version of Miri; the oldest supported Rust has none.
NIGHTLY := nightly-2026-05-20
# Tests of unsafe code that Miri can run in seconds: no foreign functions, no instructions of one
# processor, few elements. Of girih-sync all; of girih-exec those whose names contain one of these.
MIRI_EXEC := walk:: stream:: tuning:: custom::tests::sizes philox::tests::a_leaf \
	lowered::control::constants lowered::control::a_carry
# Threads are switched ten times as often as by default, so that one run sees more orders. The
# executor reads the environment.
MIRIFLAGS ?= -Zmiri-preemption-rate=0.1 -Zmiri-disable-isolation
MIRI_TEST = $(CARGO) +$(NIGHTLY) miri test --quiet --target-dir target/miri --lib

miri:
	@if scripts/toolchain.sh $(NIGHTLY) miri rust-src; then \
		MIRIFLAGS="$(MIRIFLAGS)" scripts/timed.sh "Running tests of unsafe code under Miri" \
			sh -c '$(MIRI_TEST) -p girih-sync && $(MIRI_TEST) -p girih-exec -- $(MIRI_EXEC)'; \
	else \
		echo "Miri cannot be installed: its tests of unsafe code are left out"; \
	fi

python-check: $(VENV)/.dev
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .

python-test: python-check develop $(if $(filter 0,$(ORACLE)),,$(VENV)/.oracle)
	@$(BIN)/python scripts/stubs.py --check
	$(TIMED) "Checking types" $(BIN)/mypy
	$(TIMED) "Comparing stubs with the extension" $(BIN)/python -m mypy.stubtest girih \
		--mypy-config-file pyproject.toml --allowlist tests/python/stubtest-allowlist.txt
	$(TIMED) "Running the Python tests (about 5 minutes)" $(PYTEST)

# Tests of the host's memory and of its programs on disk are left out: tests/python/conftest.py.
test-mock: DEVICE = mock
test-mock: develop $(VENV)/.dev
	@GIRIH_DEVICE=$(DEVICE) $(PYTEST)

# The part of test-mock that CI runs: on a mock with queues of its own.
MOCK_TESTS := $(patsubst %,tests/python/test_%.py,backward compiled_calls control copies executor lazy \
	reduce rows streams threads tiled_calls training_loop)
test-mock-part: python-test
	$(TIMED) "Running a part of the Python tests on the mock accelerator (about a minute)" \
		env GIRIH_DEVICE=mock:own_queues $(PYTEST) $(MOCK_TESTS)

# One test at a time: each divides its own work over processes and threads.
test-long: msrv miri develop $(VENV)/.dev
	$(TIMED) "Running the long tests (about half an hour)" $(BIN)/python -m pytest tests/long $(ARGS)

# With the options of develop, so that nothing is compiled a second time.
wheel: develop
	@rm -rf $(VENV)/wheel
	$(TIMED) "Building a wheel" env VIRTUAL_ENV=$(abspath $(VENV)) $(BIN)/maturin build --release --quiet \
		--interpreter $(BIN)/python --out $(VENV)/wheel
	$(TIMED) "Computing with the wheel in an empty environment" $(BIN)/python scripts/wheel.py $(VENV)/wheel

smoke: develop
	@mkdir -p $(SMOKE)
	$(TIMED) "Training the digit classifier for two epochs" \
		sh -c '$(BIN)/python examples/digits.py --epochs 2 --out $(SMOKE) > $(SMOKE)/log'
	@grep -q '^accuracy' $(SMOKE)/log && test -s $(SMOKE)/loss.svg && test -s $(SMOKE)/step-graph.svg

check: rust-check python-check
	$(TIMED) "Compiling and running the crates' unit tests (about 8 minutes the first time)" \
		$(CARGO) test --quiet --workspace --lib $(EXCLUDE)

# pip downloads while the crates are compiled for the first time.
test:
	@$(MAKE) --no-print-directory environment & downloads=$$!; \
		$(MAKE) --no-print-directory rust-check; checked=$$?; wait $$downloads && exit $$checked
	@$(MAKE) --no-print-directory deny features rust-test python-test test-mock-part wheel smoke docs-site
	@echo "All checks passed."

bench: $(VENV)/.dev
	VIRTUAL_ENV=$(abspath $(BENCH)) $(BIN)/maturin develop --release --quiet
	@$(BENCH)/bin/python -m benches $(ARGS)
	$(if $(findstring --sweep,$(ARGS)),,@$(CARGO) bench --quiet -p girih --bench overhead)
	$(if $(findstring --sweep,$(ARGS)),,@$(CARGO) bench --quiet -p girih-mock --bench pipeline)

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
	GIRIH_UPDATE=1 $(CARGO) test --quiet -p girih-dist --test suite page
	$(BIN)/python -m scripts.names

# Machine code is written on a machine with AVX-512.
golden:
	GIRIH_UPDATE=1 $(CARGO) test --quiet -p girih-ir -p girih-kernel -p girih-opt -p girih-transform \
		--lib --test suite
	GIRIH_UPDATE=1 $(CARGO) test --quiet -p girih-cpu --lib jit::tests::form

# Warnings and links that lead nowhere are errors. Nothing is fetched.
docs-site: develop $(VENV)/.docs
	$(TIMED) "Building the documentation's site" $(BIN)/python -m scripts.reference --site --out docs-out

clean:
	rm -rf $(VENV) .venv-bench demo-out bench-out docs-out
	$(CARGO) clean
