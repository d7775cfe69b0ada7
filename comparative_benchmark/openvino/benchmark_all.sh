#!/usr/bin/env bash
# Runs the cases of the nightly comparison with openvino: benchmark_all.sh [DEVICE] [RESULTS_FILE] [...]
exec "$(dirname "$0")/../../scripts/benchmark_all.sh" openvino "$@"
