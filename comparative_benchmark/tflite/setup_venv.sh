#!/usr/bin/env bash
# Makes a virtual environment with LiteRT, with JAX and TensorFlow to convert from and nothing else.
#
# VENV_DIR (default: tflite-benchmarks.venv in the current directory) and PYTHON may be set.
set -euo pipefail
source "$(dirname "$0")/../../scripts/environment.sh"

VENV_DIR="${VENV_DIR:-tflite-benchmarks.venv}"
ensure_environment "${VENV_DIR}" "${CBS_ROOT}/comparative_benchmark/tflite/requirements.txt"
echo "ready: source ${VENV_DIR}/bin/activate"
