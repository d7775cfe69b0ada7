#!/usr/bin/env bash
# One shard of the nightly: fetches the artifacts of some cases and races some backends on them.
#
#   nightly_shard.sh DEVICE BACKENDS NAME RESULTS_FILE [further options of `cbs run`]
#
# BACKENDS as in `cbs run --backend`, NAME as in `cbs run -name`; an empty one stands for the cases of
# nightly_cases.sh. Before anything is timed `cbs run` fetches what is locked (artifacts/locks, or
# CBS_LOCKS_DIR), and makes what is not. Exit code: that of `cbs run`.
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

exec cbs run --backend "${BACKENDS}" -device "${DEVICE}" -name "${NAME}" -o "${RESULTS}" "$@"
