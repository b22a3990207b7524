# Thin: each target calls one command. `make help` lists them.
#
#   make reproduce             small tables from raw data, on a laptop
#   make reproduce STRICT=1    the same; a data set that can't be had is an error
#   make test                  lint and tests, without the long ones of make test-all

PYTHON ?= python3
CORES ?= $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
PORT ?= 5000
STRICT ?=
# Tests run in so many processes, one file at a time in each.
WORKERS ?= 2
# The tier that `make report` publishes. Only gpu, gpu_long, study and paper say something about the paper.
TIER ?= gpu
# A tier beside the main study has a folder of its own, and no summary in the README.
PUBLISHED := $(if $(filter gpu_long study,$(TIER)),reports/$(TIER),reports)
BIN := .venv/bin
READY := .venv/ready
STORE = $(or $(MLFLOW_TRACKING_URI),sqlite:///mlflow.db)

# Libraries start one thread a job; Snakemake runs the jobs side by side.
export OMP_NUM_THREADS ?= 1
export MLFLOW_DISABLE_TELEMETRY := true
export MLFLOW_SERVER_ENABLE_JOB_EXECUTION := false

.PHONY: help venv reproduce test pytest test-all lint report docs ui schema clean

help:
	@echo "make reproduce   build the small tables from raw data (tier quick; STRICT=1, CORES=N)"
	@echo "make report      write reports/ (TIER=gpu_long: reports/gpu_long/) from results/TIER or the committed evidence"
	@echo "make check       check that reports/ and the README follow from the committed evidence"
	@echo "make ui          browse the runs in MLflow (PORT=$(PORT))"
	@echo "make test        lint, types and the quick tests (WORKERS=N)"
	@echo "make test-all    everything: also chaos, servers, clones, browsers, Slurm where installed"
	@echo "make docs        build the documentation site, strictly, into site/"
	@echo "make schema      regenerate workflow/schemas/"
	@echo "make venv        create .venv only"
	@echo "make clean       remove .venv and caches; keeps data and results"

venv: $(READY)

$(READY): requirements.in constraints.txt pyproject.toml workflow/scripts/install
	bash workflow/scripts/install "$(PYTHON)"
	@touch $@

reproduce: $(READY)
	$(BIN)/python -m pfrnn fetch --tier quick $(if $(STRICT),,--allow-missing)
	$(BIN)/snakemake --workflow-profile workflow/profiles/quick --cores $(CORES) \
		--config tier=quick $(if $(STRICT),strict=true,fetched=true)
	@echo "report: $(CURDIR)/results/quick/report/index.html"

test: lint pytest

# tests/conftest.py says which files come first.
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder
pytest: $(READY)
	$(PYTEST) -m "not nightly"

# Also the chaos, servers, DVC clones, browsers and kernel compilations; Slurm where it is installed.
test-all: lint
	PFRNN_TEST_SLURM=$(if $(shell command -v slurmctld),1) $(PYTEST)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# From the results of a tier that ran here, merged with the committed evidence where that is of the
# same tier, or else from the committed evidence alone.
report: $(READY)
	$(BIN)/python -m pfrnn report --tier $(TIER) --out $(PUBLISHED) \
		$(if $(filter reports,$(PUBLISHED)),--readme README.md) \
		$(if $(wildcard results/$(TIER)/results.csv results/$(TIER)/final),,--results $(PUBLISHED))

check: $(READY)
	$(BIN)/python -m pfrnn check --reports reports --readme README.md
	$(BIN)/python -m pfrnn check --reports reports/gpu_long
	$(BIN)/python -m pfrnn check --reports reports/study

docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --site-dir site
	cp -r reports site/

ui: $(READY)
	$(BIN)/python -m pfrnn mlflow-import
	$(BIN)/mlflow ui --backend-store-uri "$(STORE)" --port $(PORT) --workers 1

schema: $(READY)
	$(BIN)/python -m pfrnn.study.schema workflow/schemas/params.schema.json

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache *.egg-info
