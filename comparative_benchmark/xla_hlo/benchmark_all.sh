#!/usr/bin/env bash
# Runs the cases of the nightly comparison with xla_hlo: benchmark_all.sh [DEVICE] [RESULTS_FILE] [...]
exec "$(dirname "$0")/../../scripts/benchmark_all.sh" xla_hlo "$@"
