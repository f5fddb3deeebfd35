# The way from nothing to a scored translator. Every recipe is what one would type by hand.

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
# Nothing is installed then, the package itself neither: scripts find it here.
export PYTHONPATH := $(CURDIR)$(if $(PYTHONPATH),:$(PYTHONPATH))
else
PY := $(VENV)/bin/python
READY := $(VENV)/.installed
DOCS_READY := $(VENV)/.installed-docs
# A file of tests stays in one process, which makes what the tests of the file share.
SIDE_BY_SIDE := -n auto --maxprocesses 8 --dist loadfile --no-loadscope-reorder
endif

# The run of CONFIG, as the shell's $$run.
FIND_RUN = run=$$($(PY) -c "import sys; from transformer_mt.settings import reading; from transformer_mt.terminal import cli; \
	sys.exit(cli.run(lambda a: print(reading.load_config(a[0], a[1:]).run_dir), sys.argv[1:]))" $(CONFIG) $(SET))

.DEFAULT_GOAL := help
.PHONY: help setup check-python check-imports train prepare translate evaluate report \
	test test-all test-slow test-gpu check lint types schema docs bench clean
.DELETE_ON_ERROR:

help:  ## this list
	@echo "usage: make TARGET [CONFIG=$(CONFIG)] [SET=\"training.max_steps=200 …\"] [VENV=$(VENV)] [PYTHON=$(PYTHON)]"
	@echo
	@sed -n 's/^\([a-z-]*\):.*  ## \(.*\)/  \1|\2/p' $(firstword $(MAKEFILE_LIST)) | awk -F'|' '{printf "%-14s %s\n", $$1, $$2}'
	@echo
	@echo "SET: settings as key=value, separated by spaces. DECODING: those of translate and evaluate, as beam_size=5."
	@echo "BENCH: what to measure beside what, as \"train --shape base --peer fairseq=PYTHON\"; see scripts/benchmark.py."
	@echo "VENV= (empty): run with PYTHON as it is, install nothing."

setup: $(READY)  ## make the environment VENV with the tested versions, unless it is there

$(VENV)/.installed: pyproject.toml constraints.txt | check-python
	test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install -c constraints.txt -e ".[dev]"
	touch $@

$(VENV)/.installed-docs: $(READY)
	$(PY) -m pip install -c constraints.txt -e ".[docs]"
	touch $@

check-python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "error: PYTHON=$(PYTHON) is missing or older than Python 3.11; name another: make setup PYTHON=python3.12" >&2; \
		exit 2; }

check-imports: check-python
	@$(PYTHON) scripts/check_requirements.py

train: $(READY)  ## corpus, tokenizer, training, averaging, translations of the test sets, scores
ifeq ($(CONFIG),$(DEMO))
	$(PY) scripts/make_demo_corpus.py
endif
	$(PY) -m transformer_mt.prepare $(CONFIG) $(SET)
	$(PY) -m transformer_mt.train $(CONFIG) $(SET)
	@$(FIND_RUN) && $(PY) -m transformer_mt.average "$$run" && $(PY) -m transformer_mt.evaluate "$$run"

prepare: $(READY)  ## only the corpus and the tokenizer
ifeq ($(CONFIG),$(DEMO))
	$(PY) scripts/make_demo_corpus.py
endif
	$(PY) -m transformer_mt.prepare $(CONFIG) $(SET)

translate: $(READY)  ## standard input, line by line, with the trained model: make -s translate < FILE
	@$(FIND_RUN) && $(PY) -m transformer_mt.translate "$$run/model" $(DECODING)

evaluate: $(READY)  ## translate the test sets with the trained model, and score them
	@$(FIND_RUN) && $(PY) -m transformer_mt.evaluate "$$run" $(DECODING)

report: $(READY)  ## a page of HTML about the trained model: report.html
	@$(FIND_RUN) && $(PY) -m transformer_mt.report "$$run" --output report.html

test: $(READY)  ## the tests of every property, in minutes
	$(PY) -m pytest $(SIDE_BY_SIDE)

test-all: $(READY)  ## these and the thorough ones: full products, repeats, races, compilations
	$(PY) -m pytest $(SIDE_BY_SIDE) -m "not slow"

test-slow: $(READY)  ## the learning runs, in minutes
	$(PY) -m pytest -m slow

# One process after the other: the GPU's memory is one.
test-gpu: $(READY)  ## the tests that need a GPU, in minutes
	$(PY) -m pytest -m cuda

check: lint types test  ## lint, formatting, types, and the tests of every property

lint: $(READY)
	$(PY) -m ruff check
	$(PY) -m ruff format --check

types: $(READY)
	$(PY) -m mypy

schema: $(READY)  ## write configs/schema.json, by which editors complete and check configurations
	$(PY) -c "from transformer_mt.settings.reading import json_schema; print(json_schema(), end='')" > configs/schema.json

# The variable keeps the theme from printing a notice about the future of MkDocs.
docs: $(DOCS_READY)  ## build the site of the documentation in site/
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict

bench: $(READY)  ## measure the speed of training and decoding on this machine
	$(PY) scripts/benchmark.py $(BENCH)

clean:  ## remove caches and build outputs; data/ and runs/ stay
	rm -rf build dist site *.egg-info .coverage htmlcov .mypy_cache .pytest_cache .ruff_cache
	find transformer_mt scripts tests -name __pycache__ -type d -prune -exec rm -rf {} +
	@echo "data/, runs/ and $(or $(VENV),the environment) stay: they are yours to remove."
