# From installation to a scored model. Every recipe consists of commands that you could also type by hand.

CONFIG ?= configs/demo_en_de.yaml
SET ?=
DECODING ?=
BENCH ?=
PYTHON ?= python3
VENV ?= .venv

DEMO := configs/demo_en_de.yaml

ifeq ($(strip $(VENV)),)
PY := $(PYTHON)
READY := check-imports
DOCS_READY := check-imports
# With an empty VENV nothing is installed, not even this package: scripts find it here.
export PYTHONPATH := $(CURDIR)$(if $(PYTHONPATH),:$(PYTHONPATH))
else
PY := $(VENV)/bin/python
READY := $(VENV)/.installed
DOCS_READY := $(VENV)/.installed-docs
# All tests of a file run in one process, because they share fixtures.
SIDE_BY_SIDE := -n auto --maxprocesses 8 --dist loadfile --no-loadscope-reorder
endif

# Sets the shell variable $$run to the run directory of CONFIG.
FIND_RUN = run=$$($(PY) -c "import sys; from transformer_mt.settings import reading; from transformer_mt.terminal import cli; \
	sys.exit(cli.run(lambda a: print(reading.load_config(a[0], a[1:]).run_dir), sys.argv[1:]))" $(CONFIG) $(SET))

.DEFAULT_GOAL := help
.PHONY: help setup check-python check-imports train prepare translate evaluate report \
	test test-all test-slow test-gpu check lint types schema docs bench clean
.DELETE_ON_ERROR:

help:  ## print this list
	@echo "usage: make TARGET [CONFIG=$(CONFIG)] [SET=\"training.max_steps=200 …\"] [VENV=$(VENV)] [PYTHON=$(PYTHON)]"
	@echo
	@sed -n 's/^\([a-z-]*\):.*  ## \(.*\)/  \1|\2/p' $(firstword $(MAKEFILE_LIST)) | awk -F'|' '{printf "%-14s %s\n", $$1, $$2}'
	@echo
	@echo "SET: settings as key=value, separated by spaces. DECODING: settings of translate and evaluate, such as beam_size=5."
	@echo "BENCH: arguments of scripts/benchmark.py, such as \"train --shape base --peer fairseq=PYTHON\"."
	@echo "VENV= (empty): use PYTHON and install nothing."

setup: $(READY)  ## create the environment VENV with the tested versions, if it does not exist

$(VENV)/.installed: pyproject.toml constraints.txt | check-python
	test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install -c constraints.txt -e ".[dev]"
	touch $@

$(VENV)/.installed-docs: $(READY)
	$(PY) -m pip install -c constraints.txt -e ".[docs]"
	touch $@

check-python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "error: PYTHON=$(PYTHON) is missing or older than Python 3.11; give another: make setup PYTHON=python3.12" >&2; \
		exit 2; }

check-imports: check-python
	@$(PYTHON) scripts/check_requirements.py

train: $(READY)  ## all stages from a corpus to scores: prepare, train, average and evaluate
ifeq ($(CONFIG),$(DEMO))
	$(PY) scripts/make_demo_corpus.py
endif
	$(PY) -m transformer_mt.prepare $(CONFIG) $(SET)
	$(PY) -m transformer_mt.train $(CONFIG) $(SET)
	@$(FIND_RUN) && $(PY) -m transformer_mt.average "$$run" && $(PY) -m transformer_mt.evaluate "$$run"

prepare: $(READY)  ## only train the tokenizer and encode the corpus
ifeq ($(CONFIG),$(DEMO))
	$(PY) scripts/make_demo_corpus.py
endif
	$(PY) -m transformer_mt.prepare $(CONFIG) $(SET)

translate: $(READY)  ## translate standard input, line by line, with the trained model: make -s translate < FILE
	@$(FIND_RUN) && $(PY) -m transformer_mt.translate "$$run/model" $(DECODING)

evaluate: $(READY)  ## translate the test sets with the trained model, and score the translations
	@$(FIND_RUN) && $(PY) -m transformer_mt.evaluate "$$run" $(DECODING)

report: $(READY)  ## write a page of HTML about the trained model: report.html
	@$(FIND_RUN) && $(PY) -m transformer_mt.report "$$run" --output report.html

test: $(READY)  ## run the quick tests, in minutes
	$(PY) -m pytest $(SIDE_BY_SIDE)

test-all: $(READY)  ## run these and the thorough tests: all properties, more combinations, servers, races
	$(PY) -m pytest $(SIDE_BY_SIDE) -m "not slow"

test-slow: $(READY)  ## run the rest: learning runs, many kills, full products; in more than an hour
	$(PY) -m pytest -m slow

# In one process, because all tests share the memory of the GPU.
test-gpu: $(READY)  ## run the tests that need a GPU, in minutes
	$(PY) -m pytest -m cuda

check: lint types test  ## check lint, formatting and types, and run the quick tests

lint: $(READY)
	$(PY) -m ruff check
	$(PY) -m ruff format --check

types: $(READY)
	$(PY) -m mypy

schema: $(READY)  ## write configs/schema.json, with which editors complete and check configurations
	$(PY) -c "from transformer_mt.settings.reading import json_schema; print(json_schema(), end='')" > configs/schema.json

# The variable turns off a notice of the theme about the future of MkDocs.
docs: $(DOCS_READY)  ## build the site of the documentation in site/
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict

bench: $(READY)  ## measure the speed of training and decoding on this machine
	$(PY) scripts/benchmark.py $(BENCH)

clean:  ## remove caches and build outputs, but not data/ and runs/
	rm -rf build dist site *.egg-info .coverage htmlcov .mypy_cache .pytest_cache .ruff_cache
	find transformer_mt scripts tests -name __pycache__ -type d -prune -exec rm -rf {} +
	@echo "data/, runs/ and $(or $(VENV),the environment) are not removed: remove them yourself if you want."
