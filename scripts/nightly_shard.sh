#!/usr/bin/env bash
# One shard of the nightly: fetches the artifacts of some cases and races some backends on them.
#
#   nightly_shard.sh DEVICE BACKENDS NAME RESULTS_FILE [further options of `cbs run`]
#
# BACKENDS as in `cbs run --backend`, NAME as in `cbs run -name`; an empty one stands for the cases of
# nightly_cases.sh. Before anything is timed `cbs run` fetches what is locked (artifacts/locks, or
# CBS_LOCKS_DIR), and makes what is not. Then other people's benchmarks run, into the same file:
# CBS_TORCHBENCH names TorchBench's folders (as `cbs run --torchbench`; both tests, through BACKENDS or
# CBS_TORCHBENCH_BACKENDS), CBS_BENCH a milabench configuration (as `cbs bench --config`). Exit code: the
# one that matters most.
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
# A step that fails costs no other step its results.
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
  # Three replicates: fewer give no verdict.
  step cbs bench run --config "${CBS_BENCH}" -o "${RESULTS}" --repeat 3
fi
exit "${code}"
