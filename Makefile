# Everything runs in a virtual environment that this file makes. `make demo` and `make test` need nothing else done first.
.DEFAULT_GOAL := help
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
DATA ?= ../shared/data
unexport PYTHONDONTWRITEBYTECODE
export HF_HUB_OFFLINE = 1
export HAYSTACK_TELEMETRY_ENABLED = False
export TOKENIZERS_PARALLELISM = true

.PHONY: help demo test check format bench clean

help:  ## List the commands.
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

# uv installs in a fraction of pip's time and is given pip's folder of wheels, so that a CPU build of PyTorch that lies
# there is taken instead of a download.
.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q --disable-pip-version-check uv
	$(if $(PIP_FIND_LINKS),UV_FIND_LINKS="$(PIP_FIND_LINKS)") $(BIN)/uv pip install -q --python $(BIN)/python \
		-c constraints.txt -e '.[dev]'
	touch $@

demo: .venv/installed  ## Index the example handbook, ask it, and measure which pattern answers best.
	$(BIN)/adv-retrieval index examples/handbook --to .demo/index
	$(BIN)/adv-retrieval query "How many days does it take until the refund for a station is paid?" --from .demo/index --top-k 1
	$(BIN)/adv-retrieval eval --questions examples/handbook.questions.jsonl --from .demo/index --report .demo/report.html

test: .venv/installed  ## Run the tests.
	$(BIN)/python -m pytest

check: .venv/installed  ## Format, lint and type check, then run the tests.
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest

format: .venv/installed  ## Format the code and mend what the linter can mend.
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Copies instead of links: NLTK refuses to read linked data.
bench: .venv/installed  ## Run the benchmarks on the labelled data in DATA, beside the peers.
	$(BIN)/uv pip install -q --link-mode copy --python $(BIN)/python -c constraints.txt -r benchmarks/requirements.txt
	$(BIN)/python benchmarks/context.py $(DATA)

clean:  ## Remove the virtual environment and what the demo made.
	rm -rf .venv .demo
