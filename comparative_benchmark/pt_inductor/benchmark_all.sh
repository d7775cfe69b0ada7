#!/usr/bin/env bash
# Runs the cases of the nightly comparison with pt_inductor.
#
#   benchmark_all.sh [DEVICE] [RESULTS_FILE] [further options of run_benchmarks.py]
set -euo pipefail

DEVICE="${1:-host-cpu}"
OUTPUT="${2:-results/pt_inductor.json}"
shift $(($# < 2 ? $# : 2))

NAMES=(
  'models/BERT_TINY_(FP32|FP16|BF16)_.+/.+'
  'models/RESNET_TINY_(FP32|FP16|BF16)_.+/.+'
  'models/BERT_BASE_FP32_.+_SEQLEN128/.+'
  'models/BERT_LARGE_FP32_.+_BATCH1/.+'
  'models/RESNET50_FP32_.+_BATCH1/.+'
)
NAME="$(IFS='|'; echo "${NAMES[*]}")"
exec "$(dirname "$0")/run_benchmarks.py" -name "${NAME}" -device "${DEVICE}" -o "${OUTPUT}" "$@"
