# The two commands that matter: `make demo` and `make test`. Both set up what they need.
PYTHON ?=
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
WORKERS ?= 2
SECONDS ?= 60
SEED ?= 1
FAILED := $(VENV)/failed-tests

.PHONY: help install demo test test-long fuzz lint types bench release clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | sort | column -t -s '	'

install: $(STAMP)  ## put planform into .venv/bin/planform

$(STAMP): pyproject.toml sdk/pyproject.toml constraints.txt
	@test -x $(BIN)/python || { python=$(or $(PYTHON),$$(python3 tools/fastest_python.py)) && $$python -m venv $(VENV); }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ./sdk -e '.[dev,functions,starlark,kcl]'
	@touch $@

demo: install  ## start a control plane and watch it work
	@$(BIN)/planform demo

testbins: install
	@$(BIN)/python tools/testbins.py ensure

test: install lint types testbins  ## everything a change must pass
	@rm -f $(FAILED)
	PLANFORM_FAILED=$(FAILED) $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -m "not long" || { \
	  test -s $(FAILED) || exit 1; \
	  echo "== What failed beside the others is run once more, alone; a test that needs this is a test to mend. =="; \
	  $(BIN)/python -m pytest -p no:xdist @$(FAILED); }

test-long: install testbins  ## full enumerations
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup --timeout 3600

fuzz: install  ## fuzz for SECONDS from SEED
	$(BIN)/python -m tests.fuzz --seconds $(SECONDS) --seed $(SEED)

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

bench: install testbins  ## benchmarks; each prints ratios
	$(BIN)/python -m bench

clean:  ## remove what the targets made
	rm -rf $(VENV) dist build
