# Everything a contributor runs. Needs Python 3.11+, Java 17+ and, for the peer tests, Maven.

PYTHON ?= python3
JAVA ?= java
MVN ?= mvn
PYTEST_ARGS ?=
# Two at a time, a file each: many tests wait rather than work, and Spark's take long to begin.
PARALLEL ?= -n 2 --dist loadfile
SIM_ARGS ?= --seeds 200 --jobs 2
TEETH_ARGS ?=
SOAK_ARGS ?= --for 10m

VENV := .venv
BIN := $(VENV)/bin
PEERS := .peers
PEER_NAMES := $(notdir $(patsubst %/,%,$(dir $(wildcard peers/*/pom.xml))))
PEER_STAMPS := $(PEER_NAMES:%=$(PEERS)/%/.complete)
HAVE_MVN := $(shell command -v $(MVN) 2>/dev/null)

.DEFAULT_GOAL := help
.PHONY: help setup peers lint format test test-kill demo bench sim teeth soak scenarios lock clean check-python check-java

help: ## Say what there is to run
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-9s %s\n", $$1, $$2}'

setup: check-java $(VENV)/.complete ## Make .venv with everything that tests and demo need

$(VENV)/.complete: requirements/dev.txt pyproject.toml | check-python
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

check-python:
	@command -v $(PYTHON) >/dev/null || { \
	  echo "Oncelog needs Python 3.11 or newer, and there is no '$(PYTHON)' here."; \
	  echo "Install it (Debian: apt-get install python3 python3-venv), or name one: make PYTHON=python3.12 ..."; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Oncelog needs Python 3.11 or newer, and '$(PYTHON)' is $$($(PYTHON) --version 2>&1)."; \
	  echo "Install a newer one and name it: make PYTHON=python3.12 ..."; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "'$(PYTHON)' cannot make virtual environments: install its venv module (Debian: apt-get install python3-venv)."; exit 1; }

check-java:
	@command -v $(JAVA) >/dev/null || { \
	  echo "Oncelog's tests and pipelines need Java 17 or newer, and there is no '$(JAVA)' here."; \
	  echo "Install a JDK (Debian: apt-get install openjdk-17-jdk-headless), or name one: make JAVA=/path/to/java ..."; exit 1; }
	@major=$$($(JAVA) -version 2>&1 | sed -n 's/.*version "\(1\.\)\{0,1\}\([0-9]*\).*/\2/p' | head -n 1); \
	test "$${major:-0}" -ge 17 || { \
	  echo "Oncelog's tests and pipelines need Java 17 or newer, and '$(JAVA)' is version $${major:-unknown}."; \
	  echo "Install a newer JDK (Debian: apt-get install openjdk-17-jdk-headless), or name one: make JAVA=/path/to/java ..."; exit 1; }

peers: $(PEER_STAMPS) ## Fetch the JARs of Apache Kafka that peer tests and bench need (Maven)

$(PEERS)/%/.complete: peers/%/pom.xml
	@command -v $(MVN) >/dev/null || { \
	  echo "The peers are fetched with Maven, and there is no '$(MVN)' here: install it (Debian: apt-get install maven)."; exit 1; }
	rm -rf $(@D)
	$(MVN) -q -B -f $< dependency:copy-dependencies -DoutputDirectory=$(CURDIR)/$(@D)
	@touch $@

lint: setup ## Formatting, lint, types, import rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup ## Let ruff format and fix what it can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

ifneq ($(HAVE_MVN),)
test: setup peers lint ## Lint, then every test; without Maven it says what it leaves out
	$(BIN)/pytest $(PARALLEL) --peers=require $(PYTEST_ARGS)
else
test: setup lint
	@echo "=================================================================================="
	@echo "  NOT ALL TESTS: '$(MVN)' is missing, so the tests that need Apache Kafka's JARs"
	@echo "  are LEFT OUT. They are listed again at the end. To run them, install Maven."
	@grep -rlE 'mark\.peers' tests --include='*.py' | sort | sed 's/^/    left out: /'
	@echo "=================================================================================="
	$(BIN)/pytest $(PARALLEL) --peers=leave-out $(PYTEST_ARGS)
endif

test-kill: setup peers ## Kill Spark drivers, workers, executors and brokers at every step (long)
	$(BIN)/pytest --peers=require -m kill tests/kill $(PYTEST_ARGS)

demo: setup ## Kill a Spark driver, a worker and the broker, and lose nothing; DEMO_ARGS="--seed 7"
	$(BIN)/oncelog demo $(DEMO_ARGS)

bench: setup peers ## Measure Oncelog beside Apache Kafka
	$(BIN)/python -m bench $(BENCH_ARGS)

sim: setup ## Run the broker under simulated faults; SIM_ARGS="--seed 7" for others
	$(BIN)/oncelog sim $(SIM_ARGS)

teeth: setup ## Plant every deliberate bug and see it caught; docs/proof.md has the table
	$(BIN)/python -m tests.teeth $(TEETH_ARGS)

soak: setup ## Mixed load with kills, ten minutes of it; SOAK_ARGS="--for 1h"
	$(BIN)/oncelog soak $(SOAK_ARGS)

scenarios: setup ## Which test shows which failure scenario
	@$(BIN)/python -m tools.scenarios

lock: check-python ## Pin the requirements anew
	test -x build/lock/bin/uv || { $(PYTHON) -m venv build/lock && build/lock/bin/pip install --quiet uv; }
	build/lock/bin/uv pip compile $(LOCK_ARGS) pyproject.toml -o requirements/base.txt
	build/lock/bin/uv pip compile $(LOCK_ARGS) --extra dev pyproject.toml -o requirements/dev.txt

# No index address and no machine's path may end up in the files: anyone installs from anywhere.
LOCK_ARGS = --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--custom-compile-command "make lock" $(UV_ARGS)

clean: ## Remove what was built and cached, .venv and .peers included
	rm -rf $(VENV) $(PEERS) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
