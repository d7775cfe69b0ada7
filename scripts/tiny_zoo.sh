#!/usr/bin/env bash
# Runs each tiny architecture once in each framework on every backend: about 250 trials in about 40
# minutes on 2 cores. Resumes an interrupted run.
#
# Makes the environment .venv on first use. Results: results/tiny_zoo/results.json. Arguments are
# passed to `cbs run`. One process per trial shows whether it is right, and its approximate speed.
# Verdicts need more processes: use `cbs run` without --processes.
set -euo pipefail
CDPATH="" cd "$(dirname "$0")/.."
source scripts/environment.sh

ensure_environment .venv comparative_benchmark/*/requirements.txt
exec .venv/bin/cbs run \
  --backend pt_inductor,jax_xla,tf_xla:xla,xla_hlo,iree:llvm-cpu,tflite,onnxruntime,openvino \
  --tag tiny-zoo \
  -name '.+/INPUT_DATA_MODEL_DEFAULT' \
  -device host-cpu \
  --processes 1 \
  -o results/tiny_zoo/results.json \
  --resume \
  "$@"
