#!/usr/bin/env bash
# Races the tiny BERT and ResNet through PyTorch eager, Inductor and XLA, and prints a table.
#
# Makes the environment .venv on first use. Runs three fresh processes of each competitor, interleaved,
# in a few minutes on two cores. Results: results/quickstart/results.json. Passes arguments to
# `cbs run`, e.g. `./scripts/quickstart.sh --processes 5`.
set -euo pipefail
CDPATH="" cd "$(dirname "$0")/.."
source scripts/environment.sh

SECONDS=0
ensure_environment .venv comparative_benchmark/{pt_inductor,jax_xla}/requirements.txt
environment_s=${SECONDS}
code=0
.venv/bin/cbs run \
  --backend pt_inductor,jax_xla \
  -name 'models/(BERT|RESNET)_TINY_FP32_.+_BATCH1/.+' \
  -device host-cpu \
  -o results/quickstart/results.json \
  --processes 3 \
  "$@" || code=$?
echo "environment: ${environment_s} s, race: $((SECONDS - environment_s)) s" >&2
exit "${code}"
