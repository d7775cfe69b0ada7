#!/usr/bin/env bash
# Makes a virtual environment with OpenVINO, with PyTorch to export from and nothing else.
#
# VENV_DIR (default: openvino-benchmarks.venv in the current directory) and PYTHON may be set.
set -euo pipefail
source "$(dirname "$0")/../../scripts/environment.sh"

VENV_DIR="${VENV_DIR:-openvino-benchmarks.venv}"
ensure_environment "${VENV_DIR}" "${CBS_ROOT}/comparative_benchmark/openvino/requirements.txt"
echo "ready: source ${VENV_DIR}/bin/activate"
