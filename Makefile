# One command a need; each does its own set-up. PYTHON=python3.12 chooses another interpreter.
PYTHON ?= python3
VENV   := .venv
LIGHT  := $(VENV)/.light
READY  := $(VENV)/.ready
BIN    := $(VENV)/bin

# Threads that wait soon sleep: spinning makes everything many times slower beside busy neighbours (see threads.py).
export OMP_WAIT_POLICY := passive
export GOMP_SPINCOUNT := 1000
# What a process has compiled serves the next one, even where the surroundings would forbid it.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test site lint types imports browser unit check bench clean

demo: $(LIGHT)
	$(BIN)/bnncert demo --out demo

# Types and then the checker's tests run beside the others, which sometimes wait: no core is idle.
test: lint imports
	$(MAKE) --jobs=2 unit types check

# The documentation: site/index.html, readable from the disk and without a network.
site: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

imports: $(READY)
	$(BIN)/lint-imports

# The report is tested in a real browser, the distribution's own. Where there is none and none can be installed, those
# tests are skipped and say so.
browser:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || { \
		[ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && export DEBIAN_FRONTEND=noninteractive && \
		timeout 300 apt-get update -qq && \
		timeout 600 apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null; \
	} || echo "no Chromium: the report is not tested in a browser"

# Two workers with a thread each: more threads than cores wait for each other. Freed memory is kept (see memory.py).
QUICK := OMP_NUM_THREADS=1 MALLOC_MMAP_THRESHOLD_=1073741824 MALLOC_TRIM_THRESHOLD_=2147483647
unit: $(READY) browser
	$(QUICK) $(BIN)/pytest -q -n 2 --dist worksteal tests checker/tests/mutants

# The checker's own tests reach every branch of it; its mutants, which are not it, are among the others.
check: $(READY)
	$(QUICK) $(BIN)/pytest -q -n 2 --dist worksteal checker/tests --ignore=checker/tests/mutants \
		--cov=bnncert_check --cov-branch --cov-report=term:skip-covered --cov-fail-under=100

# Needs BNNCERT_DATA: mnist_test.npz and posteriors/paper_*.npz
bench: $(READY)
	$(BIN)/python benchmarks/bound_calls.py
	$(BIN)/python benchmarks/test_set.py cpu 50
	$(BIN)/python benchmarks/checker.py 50

clean:
	rm -rf .coverage $(VENV) build demo site .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis

INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# What the demo needs: the core, the checker and the digits.
$(LIGHT): pyproject.toml checker/pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	PIP_CONSTRAINT=constraints.txt $(INSTALL) -e checker -e '.[check,data]'
	touch $@

# And what tests, documentation and every importer need.
$(READY): $(LIGHT) libraries.txt
	PIP_CONSTRAINT=constraints.txt $(INSTALL) -e checker -e '.[campaign,check,dask,data,dev,docs,onnx]'
	$(INSTALL) --no-deps -r libraries.txt
	touch $@
