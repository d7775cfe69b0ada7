#!/usr/bin/env bash
# The night's matrix: correctness of every tiny workload on every backend, in every framework.
#
#   nightly_parity.sh FOLDER [further options of `cbs parity`]
#
# Writes parity.txt, the matrix as text, and parity.json into FOLDER, and resumes an existing matrix
# of the same revision.
# With CBS_STORE, the text is published as nights/NIGHT/parity.txt. Exit code as of `cbs parity`.
set -euo pipefail
source "$(dirname "$0")/nightly_environment.sh"

FOLDER="${1:?a folder for the matrix}"
shift
use_environment pt_inductor jax_xla tf_xla xla_hlo iree onnxruntime openvino tflite

mkdir -p "${FOLDER}"
code=0
if (($# == 0)); then set -- -name 'models/.*TINY.*'; fi
# Wide enough for one column per backend.
COLUMNS=400 cbs parity "$@" -o "${FOLDER}/parity.json" --resume >"${FOLDER}/parity.txt" || code=$?
cat "${FOLDER}/parity.txt"
if [[ -n "${CBS_STORE:-}" && -s "${FOLDER}/parity.txt" ]]; then
  NIGHT="${NIGHT:-$(date -u +%Y%m%dT%H%M%SZ)}"
  python "${CBS_ROOT}/scripts/store.py" put "${CBS_STORE}" "${FOLDER}/parity.txt" "nights/${NIGHT}/parity.txt" \
    || code="$(worse "${code}" 1)"
fi
echo "nightly: parity: $(meaning "${code}")" >&2
exit "${code}"
