#!/usr/bin/env bash
# Everything that CI checks: style, types, import contract, tests. Makes the environment .venv on
# first use. Arguments are passed on to pytest, e.g. `./scripts/test.sh tests/unit -k protocol`.
#
#   ./scripts/test.sh --fast    style, types, import contract and unit tests, at the same time: what
#                               to run after each change
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/environment.sh

ensure_environment .venv comparative_benchmark/*/requirements.txt
ensure_environment .venv requirements/dev.txt
ensure_packages .recipes.venv requirements/recipes.txt
ensure_packages .docs.venv requirements/docs.txt

step() {
  echo "== $1"
  shift
  .venv/bin/"$@"
}
fast() {
  local logs name failed=0
  local -A started=()
  logs="$(mktemp -d)"
  trap 'rm -rf "${logs}"' RETURN
  beside() {
    local name="$1"
    shift
    ".venv/bin/$1" "${@:2}" >"${logs}/${name}" 2>&1 &
    started[${name}]=$!
  }
  # The longest first; the tests have the second CPU, and what the others leave of the first.
  beside "types" mypy --no-error-summary
  beside "style" ruff check --quiet .
  beside "format" ruff format --quiet --check .
  beside "contract" lint-imports --no-logo
  beside "locks" python scripts/lock.py --check
  echo "== unit tests"
  .venv/bin/pytest --numprocesses auto --dist loadfile -m "not alone and not slow" -q tests/unit || failed=1
  for name in style format types contract locks; do
    if wait "${started[${name}]}"; then
      echo "== ${name}: ok"
    else
      echo "== ${name}: failed"
      cat "${logs}/${name}"
      failed=1
    fi
  done
  return "${failed}"
}

if [[ "${1:-}" == --fast ]]; then
  fast
  exit
fi
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
# One that dies ends the run: xdist can wait for ever for what a replaced one was to do.
step "tests" pytest --durations 15 --durations-min 20 --numprocesses auto --dist loadfile --no-loadscope-reorder \
  --max-worker-restart 0 -m "not alone"
step "tests that need the machine for themselves" pytest -m alone
