#!/usr/bin/env bash
# Runs the cases of the nightly comparison with one backend; the backends' benchmark_all.sh call it.
#
#   benchmark_all.sh BACKEND [DEVICE] [RESULTS_FILE] [further options of run_benchmarks.py]
set -euo pipefail

BACKEND="$1"
DEVICE="${2:-host-cpu}"
OUTPUT="${3:-results/${BACKEND}.json}"
shift $(($# < 3 ? $# : 3))

NAMES=(
  'models/BERT_TINY_(FP32|FP16|BF16)_.+/.+DEFAULT'
  'models/RESNET_TINY_(FP32|FP16|BF16)_.+/.+DEFAULT'
  'models/BERT_BASE_FP32_.+_SEQLEN128/.+DEFAULT'
  'models/BERT_LARGE_FP32_.+_BATCH1/.+DEFAULT'
  'models/RESNET50_FP32_.+_BATCH1/.+DEFAULT'
)
NAME="$(IFS='|'; echo "${NAMES[*]}")"
exec "$(dirname "$0")/../comparative_benchmark/${BACKEND}/run_benchmarks.py" \
  -name "${NAME}" -device "${DEVICE}" -o "${OUTPUT}" "$@"
