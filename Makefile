# Everything runs inside .venv, made by the first target that needs it.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
DOCS_READY := .venv/.docs-ready

.PHONY: demo test check docs docs-serve gallery lowest package mutants attack format race forget clean

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $(READY)

demo: $(READY)
	$(BIN)/python examples/demo.py

# The tests' tensors are small: more threads would only wait for each other. Two processes share
# the files among them.
test: export OMP_NUM_THREADS = 1
test: $(READY)
	$(BIN)/python -m pytest -n 2 --dist loadfile

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo --no-cache
	$(BIN)/python docs/generate.py --check

$(DOCS_READY): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[docs]"
	touch $(DOCS_READY)

# The site, into site/: open site/index.html. A broken link, a failing example or a name without
# documentation fails it. MkDocs 1 and Material are held: Material tells of its end each time.
docs: export NO_MKDOCS_2_WARNING = 1
docs: $(DOCS_READY)
	$(BIN)/python docs/generate.py
	$(BIN)/mkdocs build --strict --quiet
	@echo "site/index.html"

docs-serve: export NO_MKDOCS_2_WARNING = 1
docs-serve: $(DOCS_READY)
	$(BIN)/mkdocs serve

# Runs every script of examples/ anew, and keeps what it printed and drew: minutes.
gallery: $(READY)
	$(BIN)/python docs/making/gallery.py --all

# The core with the lowest versions that pyproject.toml allows, in an environment of its own. Builds
# of torch for GPUs are gigabytes: name an index of smaller ones by LOWEST_PIP="--extra-index-url ...".
LOWEST_PIP ?=
lowest:
	test -x .venv-lowest/bin/python || $(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/python -m pip install --quiet --disable-pip-version-check \
		hypothesis pytest pytest-timeout $$($(PYTHON) benchmarks/lowest.py) $(LOWEST_PIP)
	.venv-lowest/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	OMP_NUM_THREADS=1 .venv-lowest/bin/python -m pytest tests/solvers tests/hypergradients \
		tests/algorithms/test_algorithms.py tests/oracles/test_autograd.py tests/problem/test_networks.py \
		tests/problem/test_loaders.py tests/runs/test_minimize.py tests/theory/test_certificates.py

# Wheel and archive into dist/: the same bytes from the same commit. A test says what they hold.
package: export SOURCE_DATE_EPOCH = $(shell git log -1 --format=%ct)
package: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check build hatchling
	$(BIN)/python -m build --no-isolation
	$(BIN)/python -m pytest tests/test_package.py

mutants: $(READY)
	$(BIN)/python -m tests.mutants.run

# Damaged files, odd arguments, kills and full disks: minutes. Writes docs/benchmarks/attack.md.
attack: $(READY)
	$(BIN)/python benchmarks/attack/run.py

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

race: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[race]"
	$(BIN)/python benchmarks/race.py

# What numba compiled: it does not see changes in files that a kernel imports.
forget:
	find src -name '*.nb[ci]' -delete

clean: forget
	rm -rf .venv .venv-lowest site dist out .pytest_cache .ruff_cache .mypy_cache .hypothesis
