#!/usr/bin/env bash
# Makes a virtual environment with PyTorch and Inductor and nothing else.
#
# VENV_DIR (default: pt-benchmarks.venv in the current directory) and PYTHON may be set.
set -euo pipefail
source "$(dirname "$0")/../../scripts/environment.sh"

VENV_DIR="${VENV_DIR:-pt-benchmarks.venv}"
ensure_environment "${VENV_DIR}" "${CBS_ROOT}/comparative_benchmark/pt_inductor/requirements.txt"
# Models with their own folders may list packages, as in the guide.
for list in "${CBS_ROOT}"/common_benchmark_suite/openxla/benchmark/models/pt/*/requirements.txt; do
  [[ ! -f "${list}" ]] || install "${VENV_DIR}" --requirement "${list}" \
    --constraint "${CBS_ROOT}/comparative_benchmark/pt_inductor/requirements.txt"
done
echo "ready: source ${VENV_DIR}/bin/activate"
