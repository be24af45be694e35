# Everything a newcomer needs is `make demo` and `make test`; both set up the environment by themselves.
# Works with GNU make 3.81 (macOS) and later.

PYTHON ?=
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# The environment in .venv is the whole truth: another Spark, another Python or a stray module of the user's shell must
# not leak into it. Without bytecode on disk every process would parse its libraries anew, two seconds each time.
unexport SPARK_HOME SPARK_CONF_DIR SPARK_REMOTE PYSPARK_PYTHON PYSPARK_DRIVER_PYTHON PYTHONPATH PYTHONHOME VIRTUAL_ENV
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
# Checks come before work, also under -j.
.NOTPARALLEL:
.PHONY: help setup demo test test-long test-fast check format bench lock clean java

help: ## Show this list
	@echo "Semistream: a lookup join for Spark streams, inside a memory budget."
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@echo
	@echo "ARGS passes options on: make demo ARGS=\"--rows 200k --memory 16MB\", make test ARGS=\"-k budget\"."

setup: $(READY) ## Put everything into .venv (PYTHON=... chooses the interpreter)

demo: java $(READY) ## Watch a stream of sales be enriched from disk into a star schema
	@$(BIN)/semistream demo $(ARGS)

test: java $(READY) ## Run the tests: the fast ones first, then those on Spark
	@$(BIN)/python -m pytest -m "not long" $(ARGS)

test-long: java $(READY) ## Run the rest: the papers' algorithms, Connect, faults, what measures for minutes
	@$(BIN)/python -m pytest -m long $(ARGS)

test-fast: $(READY) ## Run only the tests that need neither Spark nor patience
	@$(BIN)/python -m pytest -m "not spark and not connect and not slow and not long" $(ARGS)

check: $(READY) ## Lint, format and types (ruff, mypy --strict)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY) ## Repair what ruff can repair
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: java $(READY) ## Measure enrich beside everything a user would pick instead
	@$(BIN)/semistream bench enrich $(ARGS)

lock: $(READY) ## Pin the newest fitting versions anew, with hashes and without addresses
	@$(BIN)/python -m pip install --quiet uv
	@$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --extra dev \
		--custom-compile-command "make lock" --output-file requirements/lock.txt pyproject.toml
	@$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-annotate \
		--constraint requirements/lock.txt --custom-compile-command "make lock" \
		--output-file requirements/build.txt requirements/build.in
	@echo "requirements/ is up to date; 'make setup' installs it."

clean: ## Remove .venv and everything the commands leave behind
	rm -rf $(VENV) semistream-demo semistream-bench spark-warehouse artifacts metastore_db derby.log build dist
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis src/*.egg-info
	find src tests benchmarks -type d -name __pycache__ -prune -exec rm -rf {} +

java:
	@scripts/check-java

# A pip that is interrupted leaves no stamp, so the next run takes up where it stopped.
# pyspark is published as source only. With the build tool already in the environment it is built without fetching
# another one, so that nothing is installed whose hash is not in requirements/.
$(READY): requirements/build.txt requirements/lock.txt pyproject.toml scripts/find-python
	@python=$$(scripts/find-python $(PYTHON)) && \
	echo "Setting up $(VENV) with $$($$python --version); the first time this takes a few minutes." && \
	$$python -m venv $(VENV)
	@echo "  1/3 installing the locked packages (Spark alone is 450 MB)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/build.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps --no-compile \
		--no-build-isolation -r requirements/lock.txt
	@echo "  2/3 installing semistream itself"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@echo "  3/3 compiling the kernels"
	@$(BIN)/python -m semistream.warmup
	@touch $@
	@echo "Ready."
