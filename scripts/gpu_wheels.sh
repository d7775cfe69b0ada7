#!/usr/bin/env bash
# Makes the folder that ./scripts/gpu_check.sh needs on a machine without a network. Run it on a
# machine with a package index: ./scripts/gpu_wheels.sh --python 3.12
#
#   --python X.Y     Python of the machine with the GPU
#   --output DIR     the folder (default .gpu-wheels of the checkout, where gpu_check.sh looks)
#   --limit-mb N     largest size (default 40); prints the groups that it leaves out
#   --without GROUP  leave out tests, page, jax-models, torch-models or iree
#   --take N==V      use another version than the locks, e.g. the flax for the machine's jax
#   --no-programs    compile no tiny models for CUDA with IREE, and make no environment
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

needs_programs() {
  local previous=
  for argument in "$@"; do
    case "${previous} ${argument}" in
      *" --no-programs" | *" -h" | *" --help" | "--without iree" | *" --without=iree") return 1 ;;
    esac
    previous="${argument}"
  done
}

if needs_programs "$@"; then
  (cd "${CBS_ROOT}" && ensure_environment .venv comparative_benchmark/{pt_inductor,jax_xla,iree}/requirements.txt)
  python="${CBS_ROOT}/.venv/bin/python"
else
  python="$(find_python)"
fi
export PYTHONPATH="${CBS_ROOT}:${CBS_ROOT}/common_benchmark_suite:${CBS_ROOT}/scripts${PYTHONPATH:+:${PYTHONPATH}}"
exec "${python}" -B -P "${CBS_ROOT}/scripts/gpu_wheels.py" "$@"
