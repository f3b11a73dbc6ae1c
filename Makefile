# Everything runs from one virtual environment that the first target makes.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# One more than there are processors: many tests wait for a process.
JOBS   ?= $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 1)))

.PHONY: demo test test-all lint conformance bench stories explore storm pairs crash power fuzz state timeline reservations docs clean
.DEFAULT_GOAL := demo

PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# What the demo needs.
$(VENV)/.demo: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) install -e . -c constraints.txt
	@touch $@

# What tests, lint and benchmarks need. Dependency groups need pip 25.1.
$(VENV)/.ready: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) install --upgrade 'pip>=25.1'
	$(PIP) install -e '.[all]' --group dev -c constraints.txt
	$(BIN)/python -m compileall -q src harness
	@touch $(VENV)/.demo $@

demo: $(VENV)/.demo           ## show in a few seconds what Perdure does: a write, kill -9, two agents, a secret, an undo
	$(BIN)/perdure demo

test: $(VENV)/.ready          ## what to run before each commit: about four minutes on two cores
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal

test-all: $(VENV)/.ready      ## these and the thorough ones: power cuts, storms, PostgreSQL, browser, npm clients
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m ""

lint: $(VENV)/.ready          ## ruff and mypy --strict
	$(BIN)/ruff check src harness tests bench
	$(BIN)/ruff format --check src harness tests bench
	$(BIN)/mypy

conformance: $(VENV)/.ready   ## the official conformance suite: servers alone and through Perdure, and Perdure as a client
	$(BIN)/python tests/conformance/suite.py

explore: $(VENV)/.ready       ## 1,000,000 histories of the kernel, 100,000 of serve's sessions, the seeded bugs, 2,000 runs of the tree model
	$(BIN)/python -m harness.kernel --histories 1000000
	$(BIN)/python -m harness.kernel.mutants
	$(BIN)/python -m harness.serve --histories 100000
	$(BIN)/python -m harness.serve --mutants
	$(BIN)/python -m harness.tree_model --runs 2000 --steps 50

storm: $(VENV)/.ready         ## 1,000 rounds of kill -9 with 8 calls in flight; 20 of perdure serve under 100 sessions
	$(BIN)/python -m harness.host.storm --rounds 1000
	$(BIN)/python -m harness.host.serve_storm

pairs: $(VENV)/.ready         ## 200 rounds of every pair of writing calls at once on one path, through one worker and two
	$(BIN)/python -m harness.races.pairs --rounds 200

crash: $(VENV)/.ready         ## writes under kill -9: 10,000 kills at fault points and at random, then the seeded bugs
	$(BIN)/python -m harness.crash --kills 10000
	$(BIN)/python -m harness.crash.hunt
	$(BIN)/python -m harness.crash.chunk_storm

power: $(VENV)/.ready         ## power cuts under writes and shared state, 4,500 states; then broken commits (needs root)
	$(BIN)/python -m harness.power --states 1500
	$(BIN)/python -m harness.power --states 150 --broken all

state: $(VENV)/.ready         ## shared state on both backends: increments, mixed clients, kills, late holders, restarts
	$(BIN)/python -m harness.state

timeline: $(VENV)/.ready      ## the time machine: shell operations, agents at once, 1,000 rounds of kills, conditions, seeded bugs
	$(BIN)/python -m harness.timeline
	$(BIN)/python -m harness.timeline.agents
	$(BIN)/python -m harness.timeline.kills
	$(BIN)/python -m harness.timeline.conditions
	$(BIN)/python -m harness.timeline.seeded_bugs

reservations: $(VENV)/.ready  ## up to eight agents race for overlapping paths: 1,000 rounds in a workspace, 200 in two clones on each state store
	$(BIN)/python -m harness.reservations
	$(BIN)/python -m harness.reservations --rounds 200 --store sqlite
	$(BIN)/python -m harness.reservations --rounds 200 --store postgres

fuzz: $(VENV)/.ready          ## 100,000 mutated frames on each pipe; 1,000 mutations of each file that a host reads
	$(BIN)/python -m harness.host.fuzz --frames 100000
	$(BIN)/python -m harness.host.file_mutations --mutations 1000

bench: $(VENV)/.ready         ## side by side with peers, each in its own environment
	$(BIN)/python -m bench.host
	$(BIN)/python -m bench.isolation
	$(BIN)/python -m harness.host.serve_isolation
	$(BIN)/python -m bench.mounts
	$(BIN)/python -m bench.write
	$(BIN)/python -m bench.risk
	$(BIN)/python -m bench.state
	$(BIN)/python -m bench.http
	$(BIN)/python -m bench.registry
	$(BIN)/python -m bench.commands
	$(BIN)/python -m bench.timeline
	$(BIN)/python -m bench.reserve

stories: $(VENV)/.ready       ## eight failures, with Perdure and with a plain file server, side by side
	$(BIN)/python -m harness.stories

docs: $(VENV)/.ready          ## write the generated reference, and the generated parts of the packages
	$(BIN)/python docs/generate.py
	$(BIN)/python packaging/generate.py

clean:
	rm -rf $(VENV) .bench build dist *.egg-info src/*.egg-info .pytest_cache .mypy_cache .ruff_cache
