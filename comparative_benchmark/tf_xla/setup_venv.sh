#!/usr/bin/env bash
# Makes a virtual environment with TensorFlow and Keras and nothing else.
#
# VENV_DIR (default: tf-benchmarks.venv in the current directory) and PYTHON may be set.
set -euo pipefail
source "$(dirname "$0")/../../scripts/environment.sh"

VENV_DIR="${VENV_DIR:-tf-benchmarks.venv}"
ensure_environment "${VENV_DIR}" "${CBS_ROOT}/comparative_benchmark/tf_xla/requirements.txt"
# Models with their own folders may list packages, as in the guide.
for list in "${CBS_ROOT}"/common_benchmark_suite/openxla/benchmark/models/tf/*/requirements.txt; do
  [[ ! -f "${list}" ]] || install "${VENV_DIR}" --requirement "${list}" \
    --constraint "${CBS_ROOT}/comparative_benchmark/tf_xla/requirements.txt"
done
echo "ready: source ${VENV_DIR}/bin/activate"
