# make demo: installs and runs the main job.  make test: installs and checks everything.  make lab: JupyterLab on the notebooks.
# make mutants: plants a sample of mutants and says which the tests kill (hours; resumes).
# make campaign: attacks on files and commands for an hour (MINUTES=60), with counts.  make fuzz: properties, for hours.
# make bench: times, shares and memory of training and sampling beside those of the stored snapshot, in bench/ (minutes).
# make docs: the site, in _site/.  make readme: README.md from nbs/index.ipynb.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
TORCH  ?= torch==2.13.0
export OMP_NUM_THREADS ?= 1

.PHONY: demo test mutants campaign fuzz bench docs readme lab clean
.DELETE_ON_ERROR:

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# torch first and alone, so that another build is one word away: make demo TORCH="torch --index-url ..."
$(VENV)/.torch: | $(BIN)/python
	$(BIN)/python -m pip install -q --disable-pip-version-check $(TORCH)
	touch $@

$(VENV)/.user: $(VENV)/.torch settings.ini setup.py pyproject.toml
	$(BIN)/python -m pip install -q --disable-pip-version-check -e .
	touch $@

$(VENV)/.dev: $(VENV)/.user
	$(BIN)/python -m pip install -q --disable-pip-version-check -e ".[dev]"
	touch $@

demo: $(VENV)/.user
	$(BIN)/loflexmdm demo --out demo

test: $(VENV)/.dev
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python tests/check.py

mutants: $(VENV)/.dev
	$(BIN)/python tests/attacks/mutation/campaign.py --imports

campaign: $(VENV)/.dev
	PYTHONPATH=tests:tests/attacks $(BIN)/python -m campaigns --minutes $(or $(MINUTES),60) --log campaign.jsonl

fuzz: $(VENV)/.dev
	LOFLEXMDM_FUZZ=$(or $(EXAMPLES),20000) $(BIN)/python -m pytest -q -p no:cacheprovider tests/attacks/test_properties.py

bench: $(VENV)/.user
	$(BIN)/python experiments/bench.py --out $(or $(OUT),bench)

docs: $(VENV)/.dev
	$(BIN)/python docs/build.py

readme: $(VENV)/.dev
	$(BIN)/python tests/house/test_readme.py

lab: $(VENV)/.dev
	$(BIN)/jupyter lab nbs

clean:
	rm -rf $(VENV) build dist *.egg-info _docs _site _screenshots jupyter_execute demo bench .pytest_cache .ruff_cache
