# `make` lists the targets. `make demo` and `make test` set everything up by themselves.
PY := .venv/bin/python
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slow explore lint format types contracts docs docs-site check lock clean

help: ## This list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18
	@echo 'Benchmarks (options through ARGS=…, --quick ends within 50 s):'
	@grep -l '__main__' benchmarks/*.py | sed -E 's|benchmarks/(.*)\.py|  bench-\1|; s|_|-|g'

setup: ## Create .venv from the lock (done by every other target that needs it)
	@scripts/setup

demo: setup ## Watch Headrace do its whole job on this machine (ARGS='--seed 7 --json --short')
	@.venv/bin/headrace demo $(ARGS)

test: setup ## Fast tests
	@$(PY) -m pytest -n auto --dist loadfile $(ARGS)

test-slow: setup ## Slow tests (crash loops, training invariants)
	@$(PY) -m pytest -m slow -n auto --dist loadfile --no-loadscope-reorder $(ARGS)

explore: setup ## Property tests with new examples; add what they find to the test as @example
	@$(PY) -m pytest -m hypothesis --hypothesis-profile explore -n auto --dist loadfile $(ARGS)

lint: setup ## ruff, formatting
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .

format: setup ## Format and fix what can be fixed
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .

types: setup ## mypy --strict on our packages
	@$(PY) -m mypy

contracts: setup ## Imports go only in the allowed direction
	@.venv/bin/lint-imports --no-cache

docs: setup ## Regenerate help blocks, schemas and the data dictionary in docs/
	@$(PY) scripts/generate_docs.py $(ARGS)

docs-site: setup ## Build the documentation site into build/site; fails at a broken link
	@NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --quiet $(ARGS)

check: lint types contracts ## All static checks
	@$(PY) scripts/generate_docs.py --check

# No setting of an installation reaches a benchmark.
bench-%: setup
	@grep -sq __main__ benchmarks/$(subst -,_,$*).py || { echo "no benchmark $*; make help lists them" >&2; exit 2; }
	@env $(patsubst %,-u %,$(filter HEADRACE_%,$(.VARIABLES))) $(PY) -m benchmarks.$(subst -,_,$*) $(ARGS)

lock: ## Resolve the dependencies into requirements.txt (UPGRADE=--upgrade for newer ones)
	@uv=$$(command -v uv || echo .uv/bin/uv); $$uv pip compile --quiet --universal --generate-hashes --all-extras --python-version 3.12 $(UPGRADE) --no-header --output-file requirements.txt pyproject.toml

clean: ## Remove the environment and what demo and benchmarks left; an installation in .headrace stays
	rm -rf .venv .uv .headrace/demo .headrace/gains dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
