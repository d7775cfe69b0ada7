#!/usr/bin/env bash
# Makes a virtual environment with JAX and XLA and nothing else.
#
# VENV_DIR (default: jax-benchmarks.venv in the current directory) and PYTHON may be set.
set -euo pipefail
source "$(dirname "$0")/../../scripts/environment.sh"

VENV_DIR="${VENV_DIR:-jax-benchmarks.venv}"
ensure_environment "${VENV_DIR}" "${CBS_ROOT}/comparative_benchmark/jax_xla/requirements.txt"
# Models with their own folders may list packages, as in the guide.
for list in "${CBS_ROOT}"/common_benchmark_suite/openxla/benchmark/models/jax/*/requirements.txt; do
  [[ ! -f "${list}" ]] || install "${VENV_DIR}" --requirement "${list}" \
    --constraint "${CBS_ROOT}/comparative_benchmark/jax_xla/requirements.txt"
done
echo "ready: source ${VENV_DIR}/bin/activate"
