#!/usr/bin/env bash
# Makes a virtual environment with JAX and XLA and nothing else.
#
# VENV_DIR (default: jax-benchmarks.venv in the current directory) and PYTHON may be set.
set -euo pipefail
source "$(dirname "$0")/../../scripts/environment.sh"

VENV_DIR="${VENV_DIR:-jax-benchmarks.venv}"
ensure_environment "${VENV_DIR}" "${CBS_ROOT}/comparative_benchmark/jax_xla/requirements.txt"
echo "ready: source ${VENV_DIR}/bin/activate"
