# Everything the book needs; `make help` lists it. A POSIX shell and GNU make 3.81 (macOS) are enough.

PYTHON ?= python3
PORT ?= 8000
JOBS ?= 3
CELL_TIMEOUT ?= 300

PY := .venv/bin/python
INSTALLED := .venv/.installed
BOOK := _build/.built
# The files of the book, asked of the shell: make itself takes a space or a colon in a name for its own.
SOURCES := find . -path './.*' -prune -o -path ./_build -prune -o -type f \( -name '*.md' -o -name '*.bib' \
	-o -path ./index.ipynb -o -path './_*.yml' -o -path './chapters/*' -o -path './reference/*' -o -path './_static/*' \
	-o -path './tools/*.py' -o -path ./tools/slides.html -o -path './d2lmini/*.py' -o -path './simgpu/*.py' \) ! -path '*/.*' ! -path ./README.md ! -path ./CHANGELOG.md ! -path '*/__pycache__/*'
SORTED := LC_ALL=C sort
FORMATTED := simgpu d2lmini tests tools benchmarks
CHECKED := $(FORMATTED) chapters reference index.ipynb

.PHONY: help setup book slides serve lab chapters quick test types test-outside clean distclean FORCE
.DEFAULT_GOAL := help

help: ## list what make can do
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile
	@echo "  Settings: PYTHON=$(PYTHON) PORT=$(PORT) JOBS=$(JOBS) CELL_TIMEOUT=$(CELL_TIMEOUT); FRESH=1 for make chapters"

setup: $(INSTALLED) ## make .venv and install what the book is built and tested with

book: $(BOOK) ## build the book into _build/html
	@echo "The book is built: make serve shows it, and runs its cells"

slides: $(BOOK) ## make each chapter a deck of slides too, as the book's build does
	@echo "make serve shows them: a button on each chapter's page leads to its slides"

serve: $(BOOK) ## show the book, and run its cells in its pages (PORT=… chooses another port than 8000)
	@exec $(PY) tools/serve.py $(PORT)

lab: $(INSTALLED) ## open notebooks made for running, in _build/notebooks, in JupyterLab
	@$(PY) tools/run_notebooks.py
	@JUPYTER_CONFIG_PATH=tools/jupyter exec $(PY) -m jupyterlab --notebook-dir=_build/notebooks

chapters: $(INSTALLED) ## execute the notebooks and store their outputs (FRESH=1 measures again what is measured)
	@$(PY) tools/chapters.py --timeout $(CELL_TIMEOUT) $(if $(FRESH),--fresh)

# The cheapest check comes first, so that most mistakes show within seconds; types are checked beside the book. The book comes before pytest, whose
# browser tests read it. Notebooks are compared in the same run, so that no process of it is idle before the end.
test: $(INSTALLED) ## check the code, build the book, run the tests, compare every notebook's outputs
	@echo "ruff:" && $(PY) -m ruff check $(wildcard $(CHECKED)) \
		&& $(PY) -m ruff format --check --quiet $(wildcard $(FORMATTED))
	@$(MAKE) --no-print-directory -j2 types book
	@$(PY) tools/notebook_env.py $(PY) -m pytest -q -n $(JOBS) --dist loadfile --no-loadscope-reorder \
		--nbval --nbval-current-env --nbval-cell-timeout $(CELL_TIMEOUT) tests index.ipynb chapters reference

types: $(INSTALLED)
	@$(PY) -m mypy

# A marker given here takes the place of those in pyproject.toml, so they are named again. A book need not be there.
quick: $(INSTALLED) ## check the code and run the tests that are not slow and start no process, browser or notebook
	@echo "ruff:" && $(PY) -m ruff check $(wildcard $(CHECKED)) \
		&& $(PY) -m ruff format --check --quiet $(wildcard $(FORMATTED))
	@$(MAKE) --no-print-directory types
	@$(PY) tools/notebook_env.py $(PY) -m pytest -q -n $(JOBS) --dist loadfile \
		-m "not process and not browser and not slow and not long and not outside" \
		--deselect tests/book/test_book.py::test_the_book_is_built tests

test-outside: $(INSTALLED) ## install transformers, accelerate, lightning and others, and run them on simulated GPUs
	@$(PY) -m pip install -qq --disable-pip-version-check -c requirements.txt --editable ".[outside]"
	@$(PY) -m pytest -q -m outside tests/outside

clean: ## remove the built book and the caches
	@rm -rf _build
	@find . -path ./.venv -prune -o -path ./.git -prune -o -type d \( -name __pycache__ -o -name '.*_cache' \
		-o -name .hypothesis -o -name .ipynb_checkpoints \) -prune -exec rm -rf {} +

distclean: clean ## remove .venv as well
	@rm -rf .venv *.egg-info

# The stamp names the folder it was made in: a .venv that was moved, or whose Python is gone, is set up again.
ifneq ($(shell test -x $(PY) && cat $(INSTALLED) 2>/dev/null),$(CURDIR))
$(INSTALLED): FORCE
endif
$(INSTALLED): requirements.txt pyproject.toml simgpu/pyproject.toml tools/setup_venv.py
	@command -v "$(PYTHON)" >/dev/null || { \
		echo "needs Python 3.10 or newer, $(PYTHON) was not found; set PYTHON=..." >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; v = sys.version_info[:3]; v >= (3, 10) or sys.exit( \
		"needs Python 3.10 or newer, found %d.%d.%d ($(PYTHON)); set PYTHON=..." % v)'
	@"$(PYTHON)" tools/setup_venv.py

# The stamp lists the sources it was built from: one that was removed also means building again. Every build starts
# from nothing: an incremental one forgets the warnings of the pages it does not read again, and keeps old pages.
CHANGED := $(shell $(SOURCES) -print | $(SORTED) | cmp -s - $(BOOK) 2>/dev/null && $(SOURCES) -newer $(BOOK) -print \
	|| echo changed)
ifneq ($(CHANGED),)
$(BOOK): FORCE
endif
$(BOOK): $(INSTALLED)
	@mkdir -p _build && find _build -mindepth 1 -maxdepth 1 ! -name notebooks -exec rm -rf {} +
	@echo "Building the book ..."
	@.venv/bin/jupyter-book build . -W -n --keep-going -q >/dev/null
	@$(SOURCES) -print | $(SORTED) > $@
