#!/usr/bin/env bash
# Runs the cases of the nightly comparison with one backend; the backends' benchmark_all.sh call it.
#
#   benchmark_all.sh BACKEND [DEVICE] [RESULTS_FILE] [further options of run_benchmarks.py]
set -euo pipefail

BACKEND="$1"
DEVICE="${2:-host-cpu}"
OUTPUT="${3:-results/${BACKEND}.json}"
shift $(($# < 3 ? $# : 3))

source "$(dirname "$0")/nightly_cases.sh"
exec "$(dirname "$0")/../comparative_benchmark/${BACKEND}/run_benchmarks.py" \
  -name "${NIGHTLY_CASES}" -device "${DEVICE}" -o "${OUTPUT}" "$@"
