#!/usr/bin/env bash
# Makes the artifacts of some models, publishes them and writes a lock file.
#
#   update_artifacts.sh STORE NAME LOCK_FILE [further options of `cbs artifacts generate`]
#
# STORE gets a folder for this version, e.g. gs://bucket/artifacts. NAME is a regular expression for
# whole names of models. Check in LOCK_FILE, e.g. artifacts/locks/tiny.json. VERSION is the name of the
# version (default: models_SECONDS), OUTPUT_DIR the folder of the files (default: a temporary folder).
# Exit code: 1 if publishing fails, otherwise as of `cbs artifacts generate`. Wrong files of a model are
# not published; its manifest lists them.
set -euo pipefail
source "$(dirname "$0")/nightly_environment.sh"

STORE="${1:?the store, e.g. gs://bucket/artifacts}"
NAME="${2:?a regular expression for the names of models}"
LOCK_FILE="${3:?the lock file, e.g. artifacts/locks/tiny.json}"
shift 3
use_environment pt_inductor jax_xla iree tf_xla xla_hlo onnxruntime openvino tflite

VERSION="${VERSION:-models_$(date +%s)}"
if [[ -z "${OUTPUT_DIR:-}" ]]; then
  OUTPUT_DIR="$(mktemp -d)"
  trap 'rm -rf "${OUTPUT_DIR}"' EXIT
fi

code=0
cbs artifacts generate -name "${NAME}" -o "${OUTPUT_DIR}" "$@" || code=$?
if ((code != 0 && code != 2)); then
  exit "${code}"
fi
urls=()
for manifest in "${OUTPUT_DIR}"/*/manifest.json; do
  [[ -f "${manifest}" ]] || continue
  directory="$(dirname "${manifest}")"
  url="${STORE%/}/${VERSION}/$(basename "${directory}")"
  cbs artifacts publish "${directory}" "${url}" || exit 1
  urls+=("${url}")
done
if ((${#urls[@]} == 0)); then
  echo "no model was exported" >&2
  exit 3
fi
mkdir -p "$(dirname "${LOCK_FILE}")"
cbs artifacts lock "${urls[@]}" -o "${LOCK_FILE}" || exit 1
exit "${code}"
