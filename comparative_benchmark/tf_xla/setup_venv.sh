#!/usr/bin/env bash
# Makes a virtual environment with TensorFlow and Keras and nothing else.
#
# VENV_DIR (default: tf-benchmarks.venv in the current directory) and PYTHON may be set.
set -euo pipefail
source "$(dirname "$0")/../../scripts/environment.sh"

VENV_DIR="${VENV_DIR:-tf-benchmarks.venv}"
ensure_environment "${VENV_DIR}" "${CBS_ROOT}/comparative_benchmark/tf_xla/requirements.txt"
echo "ready: source ${VENV_DIR}/bin/activate"
