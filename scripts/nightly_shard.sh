#!/usr/bin/env bash
# One shard of the nightly: fetches the artifacts of some cases and races some backends on them.
#
#   nightly_shard.sh DEVICE BACKENDS NAME RESULTS_FILE [further options of `cbs run`]
#
# BACKENDS as in `cbs run --backend`, NAME as in `cbs run -name`; an empty NAME selects the cases of
# nightly_cases.sh. Before measurements, `cbs run` fetches locked artifacts (artifacts/locks, or
# CBS_LOCKS_DIR) and makes the others. Then benchmarks of other projects run, into the same file:
# CBS_TORCHBENCH is the path of TorchBench's folders (as `cbs run --torchbench`; both tests, in BACKENDS
# or CBS_TORCHBENCH_BACKENDS), CBS_BENCH a milabench configuration (as `cbs bench --config`). Exits with
# the most important exit code.
set -euo pipefail
source "$(dirname "$0")/nightly_environment.sh"

DEVICE="${1:?the device, e.g. host-cpu}"
BACKENDS="${2:?the backends, e.g. jax_xla,iree}"
NAME="${3?a regular expression for the names of cases}"
RESULTS="${4:?the results file}"
shift 4

source "$(dirname "$0")/nightly_cases.sh"
NAME="${NAME:-${NIGHTLY_CASES}}"
IFS=',' read -ra NAMED <<< "${BACKENDS}"
use_environment "${NAMED[@]}"

code=0
# A failed step does not affect the results of others.
step() {
  local own=0
  "$@" || own=$?
  code="$(worse "${code}" "${own}")"
}
step cbs run --backend "${BACKENDS}" -device "${DEVICE}" -name "${NAME}" -o "${RESULTS}" "$@"
# Options that select cases do not apply to folders.
MEASURING=()
while (($#)); do
  case "$1" in
    --suite | --suite-dir | --suite_dir | --tag) shift 2 ;;
    --suite=* | --suite-dir=* | --suite_dir=* | --tag=*) shift ;;
    *) MEASURING+=("$1"); shift ;;
  esac
done
if [[ -n "${CBS_TORCHBENCH:-}" ]]; then
  for test in eval train; do
    step cbs run --torchbench "${CBS_TORCHBENCH}" -t "${test}" -device "${DEVICE}" -o "${RESULTS}" \
      --backend "${CBS_TORCHBENCH_BACKENDS:-${BACKENDS}}" "${MEASURING[@]}"
  done
fi
if [[ -n "${CBS_BENCH:-}" ]]; then
  step cbs bench install --config "${CBS_BENCH}"
  step cbs bench prepare --config "${CBS_BENCH}"
  # A verdict needs three replicates.
  step cbs bench run --config "${CBS_BENCH}" -o "${RESULTS}" --repeat 3
fi
exit "${code}"
