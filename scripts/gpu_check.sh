#!/usr/bin/env bash
# Checks the suite on the NVIDIA GPU of this machine: ./scripts/gpu_check.sh [--output DIR]
#
#   --output DIR     folder of the results (default: $OUT, else results/gpu)
#   --device D       host-gpu (default), or host-cpu: rehearses the same steps on the CPU
#   --wheels DIR     folder made by ./scripts/gpu_wheels.sh (default: $CBS_GPU_WHEELS, .gpu-wheels)
#   --exec ARGS...   runs Python with these arguments in the check's environment instead
#
# More options: --help. Requires Python 3.11, 3.12 or 3.13 with torch, jax or both: PYTHON, or the
# first of the candidates below. Installs nothing. Exits with 3 without a GPU.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

has_framework() {
  "$1" -P -c 'import sys; from importlib.util import find_spec
sys.exit(not (find_spec("torch") or find_spec("jax")))' >/dev/null 2>&1
}

find_python_with_framework() {
  local candidate first=
  local candidates=(python3 python3.12 python3.11 python3.13 "${CBS_ROOT}/.venv/bin/python")
  [[ -n "${PYTHON:-}" ]] && candidates=("${PYTHON}")
  for candidate in "${candidates[@]}"; do
    supported_python "${candidate}" || continue
    has_framework "${candidate}" && { echo "${candidate}"; return; }
    first="${first:-${candidate}}"
  done
  # A Python without a framework is sufficient to report a missing GPU.
  [[ -n "${first}" ]] && { echo "${first}"; return; }
  echo "gpu_check: not Python 3.11 to 3.13: ${candidates[*]}; choose one with PYTHON=..." >&2
  return 1
}

python="$(find_python_with_framework)"
export PYTHONPATH="${CBS_ROOT}:${CBS_ROOT}/scripts${PYTHONPATH:+:${PYTHONPATH}}"
# -B: write no bytecode into the checkout.
exec "${python}" -B -P -m gpu_check.bootstrap "$@"
