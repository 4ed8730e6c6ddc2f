# The commands that matter: `make demo`, `make test` and `make test-all`. Each sets up what it needs.
PYTHON ?=
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
WORKERS ?= 2
SECONDS ?= 60
SEED ?= 1
FAILED := $(VENV)/failed-tests

.PHONY: ui ui-test ui-dev screenshots help install demo test test-all test-long testbins testbins-ready fuzz newcomer lint types bench bench-full release clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | sort | column -t -s '	'

install: $(STAMP)  ## put planform into .venv/bin/planform

$(STAMP): pyproject.toml sdk/pyproject.toml constraints.txt
	@test -x $(BIN)/python || { python=$(or $(PYTHON),$$(python3 tools/fastest_python.py)) && $$python -m venv $(VENV); }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ./sdk -e '.[dev,functions,starlark,kcl]'
	@$(BIN)/python tools/ui.py build --if-possible
	@touch $@

ui: install  ## build the dashboard's page
	@$(BIN)/python tools/ui.py build

ui-test: install  ## the page's unit tests and types
	@$(BIN)/python tools/ui.py test

ui-dev: install  ## the page with hot reload; PLANFORM_DASHBOARD=http://127.0.0.1:PORT names a running dashboard
	@$(BIN)/python tools/ui.py dev

screenshots: ui  ## pictures of every screen, light and dark, in docs/images
	@$(BIN)/python -m tests.browser.screenshots

demo: install  ## start a control plane and watch it work
	@$(BIN)/planform demo

testbins: install
	@$(BIN)/python tools/testbins.py ensure

testbins-ready: install
	@$(BIN)/python tools/testbins.py ensure --ready

# What fails beside the others is run once more, alone, to name what is flaky; with PLANFORM_FLAKY=fail that fails too.
define run_suite
	@rm -f $(FAILED)
	PLANFORM_SUITE=$(1) PLANFORM_FAILED=$(FAILED) $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -m "not long" || { \
	  test -s $(FAILED) || exit 1; \
	  PLANFORM_SUITE=$(1) $(BIN)/python tools/rerun.py $(FAILED); }
endef

test: install lint types testbins-ready  ## everything that needs only Python and ready programs, in ten minutes
	$(call run_suite,quick)

test-all: install testbins  ## what make test leaves out: the real API server, Go peers, containers, providers, slow cases
	$(call run_suite,rest)

test-long: install testbins  ## full enumerations
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup --timeout 3600

fuzz: install  ## fuzz for SECONDS from SEED
	$(BIN)/python -m tests.fuzz --seconds $(SECONDS) --seed $(SEED)

newcomer: install  ## follow README, tutorials and guides in an empty home, from the wheel and from the tree
	$(BIN)/python -m tests.newcomer $(if $(filter command line environment,$(origin SEED)),--seed $(SEED))

lint: install  ## style, the import contract and licences
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache
	$(BIN)/python tools/supply_chain.py licences
	$(BIN)/python tools/supply_chain.py lock --check

release: install  ## wheels and their bill of materials, in dist/
	@rm -rf dist && mkdir dist
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps -w dist . ./sdk
	$(BIN)/python tools/supply_chain.py sbom dist/planform-[0-9]*.whl dist/planform.cdx.json
	cp constraints-release.txt dist/
	cd dist && sha256sum * > SHA256SUMS

types: install  ## mypy --strict
	$(BIN)/mypy

bench: install testbins  ## all benchmarks at small sizes: one table, and a picture in bench/out/report.html
	$(BIN)/python -m bench

bench-full: install testbins  ## all benchmarks at full size
	$(BIN)/python -m bench --full

clean:  ## remove what the targets made
	rm -rf $(VENV) dist build
