#!/usr/bin/env bash
# Makes a virtual environment with jaxlib, with JAX to export from and nothing else.
#
# VENV_DIR (default: xla_hlo-benchmarks.venv in the current directory) and PYTHON may be set.
set -euo pipefail
source "$(dirname "$0")/../../scripts/environment.sh"

VENV_DIR="${VENV_DIR:-xla_hlo-benchmarks.venv}"
ensure_environment "${VENV_DIR}" "${CBS_ROOT}/comparative_benchmark/xla_hlo/requirements.txt"
echo "ready: source ${VENV_DIR}/bin/activate"
