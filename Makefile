# Everything runs inside .venv, made by the first target that needs it.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test check docs mutants attack format race forget clean

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

docs: $(READY)
	$(BIN)/python docs/generate.py

mutants: $(READY)
	$(BIN)/python tests/mutants/run.py

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
	rm -rf .venv out .pytest_cache .ruff_cache .mypy_cache .hypothesis
