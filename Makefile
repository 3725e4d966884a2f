PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
WORKERS ?= 2 # make test WORKERS=4 on a machine with more cores
PYTEST = $(BIN)/python -m pytest -n $(strip $(WORKERS)) --dist loadfile --no-loadscope-reorder

TORCH := torch==2.13.0+cpu

# Tests start many Python processes; each would compile decibo anew if none may write what it has compiled.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo quick test test-all check docs bench torch clean

$(STAMP): pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing decibo and its tools into $(VENV) (a minute or two the first time)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: $(STAMP)
	@$(BIN)/python -m decibo demo

# Lint and types run beside the tests; the output of each is shown when it is done.
quick: $(STAMP)
	@$(BIN)/ruff check --quiet . && $(BIN)/ruff format --quiet --check .
	@log=$$(mktemp); $(BIN)/pyright > $$log & types=$$!; \
	$(PYTEST) -m "quick and not slow"; tests=$$?; \
	wait $$types || tests=1; cat $$log; rm -f $$log; exit $$tests

test: $(STAMP)
	@$(PYTEST) -m "not slow"

# With every variant, and many examples of each property.
test-all: $(STAMP)
	@$(PYTEST) --hypothesis-profile=all

check: $(STAMP)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/pyright

docs: $(STAMP)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet --site-dir site
	@echo "the documentation is in site/index.html"

bench: $(STAMP)
	@$(BIN)/python -m studies.performance

# The tests of the bridge to PyTorch are skipped without it. This build is for CPUs only: the usual one brings CUDA along.
torch: $(STAMP)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check '$(TORCH)'

clean:
	rm -rf $(VENV) build dist out site
