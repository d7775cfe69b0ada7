#!/usr/bin/env bash
# Makes the artifacts of some models, publishes them and locks what was published.
#
#   update_artifacts.sh STORE NAME LOCK_FILE [further options of `cbs artifacts generate`]
#
# STORE is where a folder of this version appears, e.g. gs://bucket/artifacts; NAME is a regular
# expression for whole names of models; LOCK_FILE, e.g. artifacts/locks/tiny.json, is what to check in.
# VERSION names the version (default: models_SECONDS), OUTPUT_DIR where the files are made (default: a
# folder that is removed). Exit code: that of `cbs artifacts generate`, 1 if publishing fails. A model
# of which a file was wrong is published without that file, as its manifest says.
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
