# Two commands matter: `make demo` and `make test`. Both set everything up first.
PYTHON ?= python3.11
BIN := .venv/bin
STAMP := .venv/.installed
ROWS ?= 1000000
SHARE ?= 1
KILLS ?= 200
DIR ?= samples_output
DEMO := demo_output/runs/run_dedup
TOOLS := .venv-recipes/bin
SPARK40 := 4.0.5
SPARK42 := 4.2.1
CORE := tests/rules tests/laws tests/manifest tests/formats tests/pipeline/test_run.py tests/streams/test_stream.py

.PHONY: setup demo lint test test-slow test-all test-spark40 test-spark42 recipes soak evidence bench bench-history samples export docs pictures site notebooks lock clean

setup: $(STAMP)
	@sh .ci/check_java.sh

# a copy of the environment is good until what it was made from changes
$(STAMP): pyproject.toml constraints.txt .ci/check_java.sh
	@sh .ci/check_java.sh  # before what takes a minute
	@command -v $(PYTHON) >/dev/null 2>&1 || { echo "$(PYTHON) is not there: install Python 3.11, or name another with make PYTHON=python3.12"; exit 1; }
	@echo "Setting up .venv: a minute or two, the first time"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	@$(BIN)/uv pip install --quiet --python $(BIN)/python -c constraints.txt -e '.[dev]'
	@$(BIN)/dedup prepare >/dev/null 2>&1 || true  # jars come once, before several workers want them at the same time
	@touch $@

demo: setup  ## run the job notebook on the sample batches, end with a summary
	@mkdir -p demo_output/runs
	@echo "Running nbs/jobs/run_dedup.ipynb by papermill on data_samples/: Spark starts, then three batches, about a minute"
	@{ $(BIN)/papermill --log-output --no-progress-bar -p profile demo -p rerun true nbs/jobs/run_dedup.ipynb $(DEMO).ipynb; echo $$? >$(DEMO).rc; } 2>&1 \
		| tee $(DEMO).log | grep -E --line-buffered '^(batch |  [0-9] of [0-9] )' || true
	@test "$$(cat $(DEMO).rc)" = 0 || { cat $(DEMO).log; exit 1; }
	@$(BIN)/dedup runs --output demo_output
	@echo "All batches:       $(CURDIR)/demo_output/runs/index.html"
	@echo "Executed notebook: $(CURDIR)/$(DEMO).ipynb"

lint: setup site  ## what ruff and the type checker find, and broken links of the site
	@$(BIN)/ruff check --quiet . && $(BIN)/ruff format --quiet --check nbs tests dedup_nb && $(BIN)/mypy

test: setup  ## export in sync, the first notebooks, each feature and its refusals
	@$(BIN)/python -m pytest

test-slow: setup  ## what takes seconds each: all notebooks, kills, races of processes, more back ends
	@$(BIN)/python -m pytest -m "slow and not soak" -rs

test-all: test test-slow  ## both

test-spark40 test-spark42: test-spark%: setup  ## the core of the tests with another Spark, in an environment of its own
	@test -x .venv$*/bin/python || $(PYTHON) -m venv .venv$*
	@sed 's/^pyspark==.*/pyspark==$(SPARK$*)/' constraints.txt > .venv$*/constraints.txt
	@$(BIN)/uv pip install --quiet --python .venv$*/bin/python -c .venv$*/constraints.txt -e '.[dev]'
	@.venv$*/bin/dedup prepare >/dev/null 2>&1 || true
	@.venv$*/bin/python -m pytest $(CORE)

recipes: setup  ## the recipes with the schedulers' own tools, in an environment beside ours
	@test -x $(TOOLS)/python || $(PYTHON) -m venv .venv-recipes
	@$(BIN)/uv pip install --quiet --python $(TOOLS)/python -r tests/recipes.txt
	@$(BIN)/python -m pytest -n 0 tests/recipes.py

soak: setup  ## the longest tests; kill a job KILLS times at random instants, run it again each time, compare
	@$(BIN)/python -m pytest -m soak
	@PYTHONPATH=tests:tests/support $(BIN)/python tests/programs/soak.py $(KILLS)
	@PYTHONPATH=tests:tests/support $(BIN)/python tests/programs/soak_claims.py $(KILLS)

evidence: setup  ## run at scale what the project promises, print one table; some hours, SHARE=0.01 is a try
	@PYTHONPATH=tests:tests/support $(BIN)/python tests/programs/evidence.py $(SHARE)

bench: setup  ## measure against a plain Spark copy, in the benchmark notebook
	@$(BIN)/papermill --log-output --no-progress-bar nbs/jobs/bench.ipynb bench_output.ipynb

bench-history: setup  ## measure what grows: a long history, streams, repair, claims, merge engines
	@$(BIN)/papermill --log-output --no-progress-bar nbs/jobs/bench_history.ipynb bench_history_output.ipynb

samples: setup  ## write ROWS sample events with known truth to DIR
	@$(BIN)/python -c "from dedup_nb import get_spark; from dedup_nb.tools.samples import write_samples; write_samples(get_spark(), '$(DIR)', events=$(ROWS), batches=1)"
	@echo "$(ROWS) events are in $(DIR)"

export: setup  ## format the notebooks and tests, write the package from the notebooks
	@$(BIN)/ruff format --quiet nbs tests && $(BIN)/nbdev-export && $(BIN)/ruff format --quiet dedup_nb && $(BIN)/nbdev-clean

pictures: setup  ## the pictures of the README, anew, by Chromium
	@rm -f screenshots/report-*.png screenshots/profile-light.png screenshots/profile-dark.png
	@$(BIN)/python -m pytest -n 0 -m slow -k readme tests/report/test_browser.py >/dev/null || true
	@cp screenshots/report-*.png screenshots/profile-light.png screenshots/profile-dark.png docs/pictures/

docs: setup  ## the picture of the README and the tables of the settings, anew
	@$(BIN)/python docs/generate.py

site: setup  ## documents, notebooks, command line and API as pages with a search: site/html/docs/index.html
	@$(BIN)/sphinx-build -q -W --keep-going -j auto -c docs . site/html && echo "The site: $(CURDIR)/site/html/docs/index.html"

notebooks: setup  ## run every numbered notebook in one process
	@$(BIN)/python -m pytest -n 0 -m "not soak" tests/test_notebooks_rules.py tests/test_notebooks_runs.py

lock: setup  ## choose the versions anew
	@echo 'pyspark==4.1.4' > .venv/pin.txt
	@$(BIN)/uv pip compile --quiet pyproject.toml --extra dev -c .venv/pin.txt --no-annotate --no-header -p 3.11 -o constraints.txt

clean:
	@rm -rf .venv .venv40 .venv42 .venv-recipes demo_output bench_output.ipynb bench_history_output.ipynb samples_output site screenshots
