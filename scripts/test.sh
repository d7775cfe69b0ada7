#!/usr/bin/env bash
# Style, types, import contract and tests. Makes the environment .venv on first use.
#
#   ./scripts/test.sh --fast    checks and unit tests: after each change
#   ./scripts/test.sh           the default tier: before a pull request; CI runs it
#   ./scripts/test.sh --all     every test: the nightly workflow runs it
#   ./scripts/test.sh ARGS      checks, then pytest with these arguments, e.g. `tests/unit -k protocol`
set -euo pipefail
CDPATH="" cd "$(dirname "$0")/.."
source scripts/environment.sh
# Hundreds of processes import the suite, and each would compile it again.
unset PYTHONDONTWRITEBYTECODE

tier=default
case "${1:-}" in
  --fast | --all) tier="${1#--}" && shift ;;
esac

if [[ "${tier}" != default ]] && (($#)); then
  echo "test.sh: --${tier} takes no further arguments" >&2
  exit 1
fi

ensure_environment .venv comparative_benchmark/*/requirements.txt
ensure_environment .venv requirements/dev.txt
ensure_packages .recipes.venv requirements/recipes.txt
ensure_packages .docs.venv requirements/docs.txt

logs="$(mktemp -d)"
trap 'rm -rf "${logs}"' EXIT
failed=0
declare -A checks=()
check() {
  local name="$1"
  shift
  ".venv/bin/$1" "${@:2}" >"${logs}/${name}" 2>&1 &
  checks[${name}]=$!
}
start_checks() {
  check "types" mypy --no-error-summary
  check "style" ruff check --quiet .
  check "format" ruff format --quiet --check .
  check "contract" lint-imports --no-logo
  check "locks" python scripts/lock.py --check
}
finish_checks() {
  local name
  for name in style format types contract locks; do
    if wait "${checks[${name}]}"; then
      echo "== ${name}: ok"
    else
      echo "== ${name}: failed"
      cat "${logs}/${name}"
      failed=1
    fi
  done
}
tests() {
  echo "== $1"
  shift
  .venv/bin/pytest "$@" || failed=1
}
# One process per CPU, pinned to it (see tests/conftest.py). If one dies, the run ends, since xdist can
# wait forever for the tests of a replaced process.
parallel=(--numprocesses auto --dist loadfile --no-loadscope-reorder --max-worker-restart 0)

# The checks take one CPU for a minute. Tests that measure come after them.
start_checks
if (($#)); then
  tests "tests" "$@"
elif [[ "${tier}" == fast ]]; then
  tests "unit tests" --quiet "${parallel[@]}" -m "not alone and not slow and not nightly" tests/unit tests/gpu
else
  without="" longest=(--durations 10 --durations-min 1)
  [[ "${tier}" == all ]] || without=" and not nightly"
  tests "tests" "${parallel[@]}" "${longest[@]}" -m "not alone${without}"
  finish_checks && checks=()
  # Only their files: importing the others takes half a minute.
  mapfile -t measuring < <(grep -rl --include='test_*.py' 'mark\.alone' tests)
  tests "tests that measure, one at a time" "${longest[@]}" -m "alone${without}" "${measuring[@]}"
fi
((${#checks[@]})) && finish_checks
exit "${failed}"
