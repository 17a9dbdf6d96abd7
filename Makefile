# make demo: installs and runs the main job.  make lab: JupyterLab on the notebooks.
# make test: installs, then lint, the fast tests and a page of each room.  make test-all: that and everything else.
# make test-ci: the same without slow tests and pages of models, molecules, training and commands (as .ci/run does).
# make test ROOM=samplers: the tests and notebooks that a change of this room can affect, without the site.
# make update: everything that is derived from the notebooks (export, help, schema, lists, counts, README).
# make house: figures of the code, its English and style; AGAINST=DIR puts those of another checkout beside them.
# make mutants: plants a sample of mutants and says which the tests kill (hours; resumes).
# make campaign: attacks on files and commands for an hour (MINUTES=60), with counts.  make fuzz: properties, for hours.
# make bench: times, shares and memory of training and sampling beside those of the stored snapshot, in bench/ (minutes).
# make docs: the site, in _site/.
# make release: dist/ of this version, tried on each Python that is here; nothing is uploaded.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
TORCH  ?= torch==2.13.0
export OMP_NUM_THREADS ?= 1

.PHONY: demo test test-all test-ci update house mutants campaign fuzz bench docs release lab clean
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
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python tests/check.py $(if $(ROOM),--room $(ROOM))

test-all: $(VENV)/.dev
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python tests/check.py --all

test-ci: $(VENV)/.dev
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python tests/check.py --ci

update: $(VENV)/.dev
	$(BIN)/python tools/update.py

house: $(VENV)/.dev
	$(BIN)/python -m pytest -q -p no:cacheprovider tools/test_style.py tools/test_house.py
	$(BIN)/python tools/house.py $(if $(AGAINST),--against $(AGAINST))
	$(BIN)/python tools/style.py

mutants: $(VENV)/.dev
	$(BIN)/python -m pytest -q -p no:cacheprovider tools/mutation
	$(BIN)/python tools/mutation/campaign.py --imports

campaign: $(VENV)/.dev
	$(BIN)/python -m pytest -q -p no:cacheprovider tools/campaigns
	PYTHONPATH=tests:tools $(BIN)/python -m campaigns --minutes $(or $(MINUTES),60) --log campaign.jsonl

fuzz: $(VENV)/.dev
	LOFLEXMDM_FUZZ=$(or $(EXAMPLES),20000) $(BIN)/python -m pytest -q -p no:cacheprovider tests/attacks/test_properties.py \
	    tests/molecules/test_bracket_safe.py

bench: $(VENV)/.user
	$(BIN)/python experiments/bench.py --out $(or $(OUT),bench)

docs: $(VENV)/.dev
	$(BIN)/python docs/build.py

release: $(VENV)/.dev
	$(BIN)/python tools/release.py

lab: $(VENV)/.dev
	$(BIN)/jupyter lab nbs

clean:
	rm -rf $(VENV) build dist *.egg-info _docs _site _screenshots jupyter_execute demo bench .pytest_cache .ruff_cache
