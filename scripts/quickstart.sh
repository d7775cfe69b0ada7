#!/usr/bin/env bash
# Runs the tiny BERT and ResNet through every backend on this machine and prints a table.
#
# Makes the environment .venv on first use. Results: results/quickstart/results.json. Arguments are
# passed on to `cbs run`, e.g. `./scripts/quickstart.sh -iter 20`. One process and fixed counts for
# each trial: a first look in minutes; `cbs run` without -iter measures for keeps.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/environment.sh

ensure_environment .venv comparative_benchmark/{pt_inductor,jax_xla,iree}/requirements.txt
exec .venv/bin/cbs run \
  --backend pt_inductor,jax_xla,iree \
  -name 'models/(BERT|RESNET)_TINY_FP32_.+_BATCH1/.+' \
  -device host-cpu \
  -o results/quickstart/results.json \
  -w 5 -iter 100 \
  "$@"
