# From installation to a scored model. Every recipe consists of commands that you could also type by hand.

CONFIG ?= configs/demo_en_de.yaml
SET ?=
DECODING ?=
BENCH ?=
PYTHON ?= python3
VENV ?= .venv
TORCH ?=

DEMO := configs/demo_en_de.yaml

ifeq ($(strip $(VENV)),)
PY := $(PYTHON)
READY := check-imports
PLOT_READY := check-imports
DEV_READY := check-imports
DOCS_READY := check-imports
# With an empty VENV nothing is installed, not even this package: scripts find it here.
export PYTHONPATH := $(CURDIR)$(if $(PYTHONPATH),:$(PYTHONPATH))
else
PY := $(VENV)/bin/python
READY := $(VENV)/.installed
PLOT_READY := $(VENV)/.installed-plot
DEV_READY := $(VENV)/.installed-dev
DOCS_READY := $(VENV)/.installed-docs
# All tests of a file run in one process, because they share fixtures.
SIDE_BY_SIDE := -n auto --maxprocesses 8 --dist loadfile --no-loadscope-reorder
endif

# uv installs faster than pip, but is not on every machine. Neither compiles bytecode: Python compiles what it imports, and
# most of what is installed is never imported.
UV := $(shell command -v uv 2>/dev/null)
# It has to keep what it compiled, even if an image of Docker forbids that: else each command would compile all again.
unexport PYTHONDONTWRITEBYTECODE
INSTALL = $(if $(UV),uv pip install --python $(PY),$(PY) -m pip install --no-compile) -c constraints.txt

# Installs the package with the extras $(1), such as [dev]. PyTorch's own index has other packages, too, in old versions:
# so the build TORCH comes first, without what it needs, and the next command finds that it is a tested version.
define install
test -x $(PY) || $(PYTHON) -m venv $(VENV)
$(if $(TORCH),$(INSTALL) --no-deps --index-url https://download.pytorch.org/whl/$(TORCH) torch)
$(INSTALL) -e ".$(1)"
touch $@
endef

# Sets the shell variable $$run to the run directory of CONFIG.
FIND_RUN = run=$$($(PY) -c "import sys; from transformer_mt.settings import reading; from transformer_mt.terminal import cli; \
	sys.exit(cli.run(lambda a: print(reading.load_config(a[0], a[1:]).run_dir), sys.argv[1:]))" $(CONFIG) $(SET))

.DEFAULT_GOAL := help
.PHONY: help setup check-python check-imports train prepare translate evaluate report \
	test test-all test-slow test-gpu check lint types schema docs bench clean
.DELETE_ON_ERROR:
# Two installations must not change one environment at the same time.
.NOTPARALLEL:

help:  ## print this list
	@echo "usage: make TARGET [CONFIG=$(CONFIG)] [SET=\"training.max_steps=200 …\"] [VENV=$(VENV)] [PYTHON=$(PYTHON)] [TORCH=cpu]"
	@echo
	@sed -n 's/^\([a-z-]*\):.*  ## \(.*\)/  \1|\2/p' $(firstword $(MAKEFILE_LIST)) | awk -F'|' '{printf "%-14s %s\n", $$1, $$2}'
	@echo
	@echo "SET: settings as key=value, separated by spaces. DECODING: settings of translate and evaluate, such as beam_size=5."
	@echo "BENCH: arguments of scripts/benchmark.py, such as \"train --shape base --peer eole=PYTHON\"."
	@echo "VENV= (empty): use PYTHON and install nothing."
	@echo "TORCH=cpu: for a new VENV, install PyTorch's build for CPUs, without several GB of CUDA, from download.pytorch.org."

setup: $(DEV_READY)  ## install all that tests and checks need in VENV, in the tested versions

$(VENV)/.installed: pyproject.toml constraints.txt | check-python
	$(call install,)

$(VENV)/.installed-dev: pyproject.toml constraints.txt | check-python
	$(call install,[dev])
	touch $(READY) $(PLOT_READY)

$(VENV)/.installed-plot: $(READY)
	$(call install,[plot])

$(VENV)/.installed-docs: $(READY)
	$(call install,[docs])

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
	$(PY) -m transformer_mt.train $(CONFIG) $(SET) --all

prepare: $(READY)  ## only train the tokenizer and encode the corpus
ifeq ($(CONFIG),$(DEMO))
	$(PY) scripts/make_demo_corpus.py
endif
	$(PY) -m transformer_mt.prepare $(CONFIG) $(SET)

translate: $(READY)  ## translate standard input, line by line, with the trained model: make -s translate < FILE
	@$(FIND_RUN) && $(PY) -m transformer_mt.translate "$$run/model" $(DECODING)

evaluate: $(READY)  ## translate the test sets with the trained model, and score the translations
	@$(FIND_RUN) && $(PY) -m transformer_mt.evaluate "$$run" $(DECODING)

report: $(PLOT_READY)  ## write a page of HTML about the trained model: report.html
	@$(FIND_RUN) && $(PY) -m transformer_mt.report "$$run" --output report.html

test: $(DEV_READY)  ## run the quick tests, in minutes
	$(PY) -m pytest $(SIDE_BY_SIDE)

test-all: $(DEV_READY)  ## run these and the thorough tests: all properties, more combinations, servers, races
	$(PY) -m pytest $(SIDE_BY_SIDE) -m "not slow"

test-slow: $(DEV_READY)  ## run the rest: learning runs, many kills, full products; in more than an hour
	$(PY) -m pytest -m slow

# In one process, because all tests share the memory of the GPU.
test-gpu: $(DEV_READY)  ## run the tests that need a GPU, in minutes
	$(PY) -m pytest -m cuda

check: lint types test  ## check lint, formatting and types, and run the quick tests

lint: $(DEV_READY)
	$(PY) -m ruff check
	$(PY) -m ruff format --check

types: $(DEV_READY)
	$(PY) -m mypy

schema: $(READY)  ## write configs/schema.json, with which editors complete and check configurations
	$(PY) -c "import json; from transformer_mt.settings.experiment import Config; \
	print(json.dumps(Config.model_json_schema(), indent=2))" > configs/schema.json

# The variable turns off a notice of the theme about the future of MkDocs.
docs: $(DOCS_READY)  ## build the site of the documentation in site/
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict

bench: $(DEV_READY)  ## measure the speed of reading and training on this machine
	$(PY) scripts/benchmark.py $(BENCH)

clean:  ## remove caches and build outputs, but not data/ and runs/
	rm -rf build dist site *.egg-info .coverage htmlcov .mypy_cache .pytest_cache .ruff_cache
	find transformer_mt scripts tests -name __pycache__ -type d -prune -exec rm -rf {} +
	@echo "data/, runs/ and $(or $(VENV),the environment) are not removed: remove them yourself if you want."
