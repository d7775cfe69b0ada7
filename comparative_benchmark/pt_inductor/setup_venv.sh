#!/usr/bin/env bash
# Makes a virtual environment with PyTorch and Inductor and nothing else.
#
# VENV_DIR (default: pt-benchmarks.venv in the current directory) and PYTHON may be set.
set -euo pipefail
source "$(dirname "$0")/../../scripts/environment.sh"

VENV_DIR="${VENV_DIR:-pt-benchmarks.venv}"
ensure_environment "${VENV_DIR}" "${CBS_ROOT}/comparative_benchmark/pt_inductor/requirements.txt"
echo "ready: source ${VENV_DIR}/bin/activate"
