# The two commands of the README, and the lanes of CI.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Any torch in the range of pyproject.toml does; a CPU build of this one is small.
TORCH ?= torch==2.13.0
# A file's tests share a worker. In the order of names: the small files of tests/unit fill the end.
PYTEST = $(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder --durations=40
VERMIN = $(BIN)/vermin --quiet --violations --no-tips --no-parse-comments
# Exit code 1 of triage means "a failure was found", which is what the demo is about.
FOUND = [ $$? -eq 1 ]
# Tests start a thousand processes, and each would compile our modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-long mutants rewritten docs-check site-check docs-site dist dist-check lint ruff mypy vermin benchmark clean

$(VENV)/installed: pyproject.toml emulator/pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet $(TORCH)
	$(BIN)/python -m pip install --quiet --editable ./emulator --editable '.[dev]'
	touch $@

demo: $(VENV)/installed
	$(BIN)/triage compile --kernel mamba3_siso_bwd_dqkv --sm 100a || $(FOUND)

# Two at a time. Once, beside the linters, pytest rewrites the assertions of each file of tests,
# which else each worker does; what is wrong with a file, the run says.
test: $(VENV)/installed
	$(MAKE) -j2 mypy rewritten ruff vermin
	$(PYTEST) -m "not long and not gpu and not browser"

test-long: $(VENV)/installed
	$(PYTEST) -m "not gpu and not browser" --hypothesis-profile=searching

# The code of verdicts, bisections and bugs' states with one place changed at a time: which change no
# test notices. One in 48 of them, the same in each run; a new one that survives is an error.
mutants: $(VENV)/installed
	$(BIN)/python checks/mutants.py

rewritten: $(VENV)/installed
	-@$(BIN)/python -m pytest --collect-only -qq >/dev/null 2>&1

lint: ruff mypy vermin

ruff: $(VENV)/installed
	$(BIN)/ruff check
	$(BIN)/ruff format --check

mypy: $(VENV)/installed
	$(BIN)/mypy

# Code that runs in a user's environment, or on a machine with a GPU, takes an older Python.
vermin: $(VENV)/installed
	$(VERMIN) --target=3.11- harness emulator repros benchmarks checks
	$(VERMIN) --target=3.10- harness/io/children harness/frontends/*/child* harness/frontends/*/driver.py harness/frontends/pretend harness/run/gpu/device

# Every command that is shown can be given, and the first one prints what README.md says.
docs-check: $(VENV)/installed
	$(BIN)/python -m pytest tests/test_docs.py tests/tools/test_readme_real.py

# In a headless Chromium, which has to be there (Debian: chromium and chromium-driver).
site-check: $(VENV)/installed
	$(BIN)/python -m pytest -m browser tests/browser

# README.md and docs/ as a site, in build/docs; a link that leads nowhere is an error.
docs-site: $(VENV)/installed
	$(BIN)/uvx --quiet --from mkdocs==1.6.1 --with mkdocs-material==9.8.2 mkdocs build --strict --quiet -f packaging/mkdocs.yml

# Both distributions: sdists, the wheels that they make, and how an index will show them.
dist: $(VENV)/installed
	rm -rf dist
	$(BIN)/uv build --quiet --all-packages
	$(BIN)/uvx --quiet twine@7.0.0 check --strict dist/*.whl dist/*.tar.gz

# The wheels, in environments of their own.
dist-check: dist
	$(BIN)/python -m pytest tests/tools/test_installed.py

benchmark: $(VENV)/installed
	$(BIN)/python benchmarks/compile.py

clean:
	rm -rf $(VENV) .triage .mypy_cache .pytest_cache .ruff_cache dist build
