# What people type and what CI runs.  `make help` lists the targets.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
VERSIONS := .ci/constraints.txt
# A module's byte code is made when it is first imported: for all packages it takes 40 s.
INSTALL := CHRONICLE_KERNELS=none $(BIN)/python -m pip install --quiet --no-compile \
	--editable ".[all]" --group dev

# Targets and tests start many processes: they share byte code, whatever the environment says.
export PYTHONDONTWRITEBYTECODE :=

# As many processes as there are cores.
PYTEST := $(BIN)/python -m pytest
TOGETHER := -n logical --maxprocesses 4 --dist worksteal
# tests/tiers.py says what is heavy, tests/default_tier.py which of that runs here
DEFAULT_TIER := -m "smoke or not (heavy or extra or slow)"
SINCE ?= HEAD

.PHONY: help setup kernels wheel test-bounds sanitized-kernels test-sanitizers versions java browser console console-check pictures demo test test-changed test-all crash mutants nightly spark lint format bench clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

setup: $(STAMP) kernels ## make the virtual environment and install Chronicle into it, editable

# The functions that are machine code: compiled anew where they, or what they read, have changed.
KERNELS := .build/kernels.stamp
KERNEL_SOURCES := $(shell find core store indexes query live formats -name '*.py')

kernels: $(KERNELS) ## compile the kernels that have changed

$(KERNELS): $(STAMP) $(wildcard kernel_build/*) core/native.py $(KERNEL_SOURCES)
	$(BIN)/python -m kernel_build . --if-changed
	touch $@

wheel: setup ## a wheel in dist/ that installs without a compiler
	CHRONICLE_KERNELS=_kernels,_kernels_v3 $(BIN)/python -m build --wheel

test-bounds: setup ## the tests of what kernels do, with kernels that check each index
	mkdir -p .build/bounds && $(BIN)/python -m kernel_build .build/bounds --checks bounds
	CHRONICLE_KERNELS_FROM="$(CURDIR)/.build/bounds" $(PYTEST) $(TOGETHER) $(DEFAULT_TIER) \
		tests/store tests/indexes tests/query tests/live tests/formats

# A process that loads kernels with AddressSanitizer in them needs its library, and the one that
# throws exceptions, from its beginning; workers have the ordinary kernels.
SANITIZED = CHRONICLE_KERNELS_FROM="$(CURDIR)/.build/sanitizers" ARROW_DEFAULT_MEMORY_POOL=system \
	LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libstdc++.so)" \
	ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 UBSAN_OPTIONS=halt_on_error=1

sanitized-kernels: setup
	mkdir -p .build/sanitizers && CC=gcc $(BIN)/python -m kernel_build .build/sanitizers --checks sanitizers

test-sanitizers: sanitized-kernels ## the same with kernels that check memory, divisions, shifts and casts (needs gcc)
	$(SANITIZED) $(PYTEST) $(TOGETHER) $(DEFAULT_TIER) -s --timeout 0 \
		tests/query tests/store tests/formats tests/fuzz tests/test_mutated_stores.py

# The editable install does not put pyspark_chronicle where Spark looks for data sources (it lists
# the directories of sys.path): a .pth file does.
$(STAMP): pyproject.toml $(VERSIONS)
	$(PYTHON) -c "import sys; sys.exit('Chronicle needs Python 3.11 or newer, found ' + sys.version) if sys.version_info < (3, 11) else 0"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(INSTALL) --constraint $(VERSIONS) || \
		{ echo "Not all versions of $(VERSIONS) can be had here: the newest that fit instead."; $(INSTALL); }
	echo "$(CURDIR)/spark_connector/discovery" > \
		"$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/chronicle_discovery.pth"
	touch $(STAMP)

versions: setup ## install the newest versions of everything and write them down; then run the tests
	$(INSTALL) --upgrade --upgrade-strategy eager
	mkdir -p .build && sed -n '/^#/p' $(VERSIONS) > .build/versions
	$(BIN)/python -m pip freeze --exclude-editable >> .build/versions
	mv .build/versions $(VERSIONS)

java: ## have a Java 17+ runtime for Spark; where that cannot be, say so
	@sh tools/java.sh

browser: ## have a Chromium for the console's tests; where that cannot be, say so
	@sh tools/browser.sh

WEB_PACKAGES := web/node_modules/.package-lock.json

$(WEB_PACKAGES): web/package-lock.json
	cd web && npm ci --ignore-scripts --silent
	touch $@

console: $(WEB_PACKAGES) ## build the web console from web/ into server/console (needs node and npm)
	cd web && npm run --silent build && npm run --silent test

console-check: console ## the committed console is what its sources build
	git diff --exit-code --stat server/console

demo: setup java ## the main job on an embedded store: generate, ingest, query, read by Spark
	$(BIN)/chronicle demo

test: setup java browser ## the default tests: minutes, no network
	$(PYTEST) $(TOGETHER) $(DEFAULT_TIER)

test-changed: setup java browser ## what the changes since a commit can reach, the nearest first, in two minutes (SINCE=HEAD)
	$(PYTEST) $(TOGETHER) --dist load --changed $(SINCE) --seconds 100 -m "not slow" || \
		[ $$? -eq 5 ]  # pytest's word for no tests: nothing that a test reaches has changed

test-all: setup java browser ## every test, and more cases of the random ones
	CHRONICLE_HYPOTHESIS=long $(PYTEST) $(TOGETHER) -m ""

golden: setup ## write what the golden scripts (tests/golden) print now; read the diff
	CHRONICLE_GOLDEN=rewrite $(BIN)/python -m pytest tests/test_golden_scripts.py

pictures: setup ## draw the picture of README.md from the demo's own events
	$(BIN)/python tools/pictures.py

crash: setup ## the long form of the crash and fault-injection suite
	CHRONICLE_CRASH=long $(BIN)/python -m pytest -m crash --timeout 1800

mutants: setup ## break one promise at a time; a test must notice each (MUTANTS="--jobs 2 --only log")
	$(BIN)/python tools/mutants/run.py $(MUTANTS)

nightly: test-sanitizers ## random patterns and replay intervals, a cold start, mutated stores, fuzzers, kernels with sanitizers: hours, other seeds each time
	CHRONICLE_STRESS_SECONDS=3600 $(BIN)/python -m pytest --timeout 0 tests/test_cold_start.py
	CHRONICLE_STRESS_SECONDS=600 $(BIN)/python -m pytest --timeout 0 tests/server/test_races.py
	CHRONICLE_CRASH=long $(BIN)/python -m pytest --timeout 0 tests/test_mutated_stores.py tests/test_fork.py
	CHRONICLE_HYPOTHESIS=nightly $(BIN)/python -m pytest -s --timeout 0 \
		tests/query/pattern/test_match_differential.py tests/query/pattern/test_match_stars.py \
		tests/query/pattern/test_match_advancing.py \
		tests/query/replay/test_replay_intervals.py tests/query/situations \
		tests/query/split/test_split_situations.py tests/live/test_live_situations.py
	CHRONICLE_FUZZ=100000 CHRONICLE_SEED=$${CHRONICLE_SEED:-$$(date +%s)} \
		$(BIN)/python -m pytest -s --timeout 0 tests/fuzz

spark: setup java ## only the tests that start Spark
	$(BIN)/python -m pytest -m spark

lint: $(STAMP) ## style, formatting and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	mkdir -p .build && ln -sfn "$(CURDIR)" .build/chronicle
	MYPYPATH=.build $(BIN)/mypy -p chronicle

format: setup ## format the sources and fix what ruff can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: setup ## measure against peers; writes bench/results
	$(BIN)/python -m chronicle.bench

clean: ## remove what the targets above have made
	rm -rf $(VENV) web/node_modules .build build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
