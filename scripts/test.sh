#!/usr/bin/env bash
# Everything that CI checks: style, types, import contract, tests. Makes the environment .venv on
# first use. Arguments are passed on to pytest, e.g. `./scripts/test.sh tests/unit -k protocol`.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/environment.sh

ensure_environment .venv comparative_benchmark/*/requirements.txt
ensure_environment .venv requirements/dev.txt
# The tests' own out-of-tree package: it plugs in through entry points, as users' packages do.
.venv/bin/python -c 'import cbs_test_plugin' 2>/dev/null \
  || install .venv --no-deps --editable tests/plugin

step() {
  echo "== $1"
  shift
  .venv/bin/"$@"
}
step "style" ruff check --quiet .
step "format" ruff format --quiet --check .
step "types" mypy --no-error-summary
step "import contract" lint-imports --no-logo
step "locks" python scripts/lock.py --check
if (($#)); then
  step "tests" pytest "$@"
  exit
fi
# One process for each CPU, pinned to it (see tests/conftest.py). What measures, races or needs
# several CPUs comes afterwards, alone.
step "tests" pytest --numprocesses auto --dist loadfile -m "not alone"
step "tests that need the machine for themselves" pytest -m alone
