# make setup   everything into .venv        make test    lint, types and all tests
# make demo    the main job, in minutes      make bench   ratios against named baselines
# make data    the data that tests need      make browser a browser for the tests of the report
# make fuzz    damaged logs and run folders, hostile requests and answers
# make dist    wheel and source archive      make docs    the site, in build/site
# make results everything that follows from the tables of runs under results/
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
FIX ?= softmax
START ?= paper,clear
SEEDS ?= 3
BIOME := npx --yes --fetch-retries=0 @biomejs/biome@2.6.6
SCRIPTS := src/eureka/report/assets
DATA ?= mnist fashion_mnist cifar10 sotu moby_dick bible

.PHONY: setup demo test lint lint-js bench fuzz browser data results dist docs clean

setup: $(STAMP)

# Modules are compiled when they are first imported: most of the large packages are never imported.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e ".[dev]"
	@touch $@

demo: setup
	$(BIN)/eureka compare digits --fix $(FIX) --start $(START) --seeds $(SEEDS) --out runs/demo
	@cp runs/demo/report.html report.html
	@echo "Open report.html in a browser."

lint: setup lint-js
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The script of the report: each part for its format and mistakes, then all as the one script they become, for names that are
# declared nowhere or used nowhere.
lint-js:
	@if ! $(BIOME) --version >/dev/null 2>&1; then echo "JavaScript was not linted: it needs npx, and the network at first."; else \
	  mkdir -p build && cat $(SCRIPTS)/*.js > build/report.js && \
	  $(BIOME) ci --colors=off $(SCRIPTS) && \
	  $(BIOME) lint --colors=off --error-on-warnings --only=noUndeclaredVariables --only=noUnusedVariables build/report.js; \
	fi

# mypy takes one core for a minute; the data come meanwhile.
test: setup
	@$(MAKE) --no-print-directory -j2 lint data
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal

bench: setup
	OMP_NUM_THREADS=1 $(BIN)/eureka bench attention
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.detect
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.tasks
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.training
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.patched
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.trainer

# Damaged logs in all layouts, damaged run folders, hostile requests and answers of servers: none may give a traceback, hang or fill
# the memory. The tests try a few of each.
fuzz: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.curves.fuzzing --files 10000
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.hardened.fuzzing

# Real data, 190 MB, kept in the user's cache. Without a network the tests that need it are skipped and say so.
data: setup
	@$(BIN)/eureka data fetch $(DATA) || echo "the tests that need this data will be skipped"

# After runs were added to a table: summaries, tables in pages, the picture, the page of claims and the known waits.
results: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.tables --write
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.windows
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.claims --page docs/evidence.md
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.waits --write >/dev/null

# the browser in which the report is tested; without it those tests say that they were skipped
browser:
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null || \
	  (apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium chromium-driver >/dev/null) || \
	  echo "no browser could be installed: the tests of the report's page will be skipped"

# The site, in build/site: it opens from the disk, and fetches nothing. A warning, a dead link among them, is an error.
docs: setup
	$(BIN)/python -m benchmarks.pages --out build/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --clean
	@echo "Open build/site/index.html in a browser."

# the wheel and the source archive, in dist/
dist: setup
	rm -rf dist
	$(BIN)/python -m build --no-isolation

clean:
	rm -rf .venv build dist runs report.html
