#!/usr/bin/env bash
# Exports the models of one framework, and publishes them if asked to; the scripts of the frameworks
# call it.
#
#   generate_model_artifacts.sh FRAMEWORK [FILTER] [further options of `cbs artifacts generate`]
#
# FRAMEWORK is pt, jax or tf; FILTER is a regular expression for the whole name of a model (default:
# all of them). Variables:
#
#   VENV_DIR        the environment, made if need be (default: FRAMEWORK-models.venv in the current
#                   directory)
#   PYTHON          the interpreter that it is made with
#   OUTPUT_DIR      where each model gets a directory of its name (default: in the directory for
#                   temporary files, FRAMEWORK_models_VERSION_SECONDS)
#   GCS_UPLOAD_DIR  where to publish (default: gs://iree-model-artifacts/ and the framework's name)
#   AUTO_UPLOAD     1: publish, and remove each model here once the store has confirmed it
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../../../../../scripts/environment.sh"

FRAMEWORK="${1:?the framework: pt, jax or tf}"
FILTER="${2:-.*}"
shift $(($# < 2 ? $# : 2))

case "${FRAMEWORK}" in
  pt) FULL_NAME=pytorch PACKAGE=torch BACKENDS=(pt_inductor iree onnxruntime) ;;
  jax) FULL_NAME=jax PACKAGE=jax BACKENDS=(jax_xla xla_hlo iree tflite) ;;
  tf) FULL_NAME=tensorflow PACKAGE=tensorflow BACKENDS=(tf_xla xla_hlo iree tflite) ;;
  *) echo "no framework ${FRAMEWORK}; choices are pt, jax, tf" >&2; exit 1 ;;
esac
VENV_DIR="${VENV_DIR:-${FRAMEWORK}-models.venv}"
LOCKS=()
for backend in "${BACKENDS[@]}"; do
  LOCKS+=("${CBS_ROOT}/comparative_benchmark/${backend}/requirements.txt")
done
if [[ "${AUTO_UPLOAD:-0}" == 1 && "${GCS_UPLOAD_DIR:-gs://}" == gs://* ]]; then
  LOCKS+=("${CBS_ROOT}/requirements/gcs.txt")
fi
ensure_environment "${VENV_DIR}" "${LOCKS[@]}"

VENV_PYTHON="${VENV_DIR}/bin/python"
CBS=("${VENV_PYTHON}" -m comparative_benchmark)
# What follows a plus says how a package was built; it has no place in a URL.
VERSION="$("${VENV_PYTHON}" -c \
  "from importlib.metadata import version; print(version('${PACKAGE}').partition('+')[0])")"
ARTIFACTS_VERSION="${FRAMEWORK}_models_${VERSION}_$(date +'%s')"
OUTPUT_DIR="${OUTPUT_DIR:-${TMPDIR:-/tmp}/${ARTIFACTS_VERSION}}"
GCS_UPLOAD_DIR="${GCS_UPLOAD_DIR:-gs://iree-model-artifacts/${FULL_NAME}}"

# What lies there already is published only with --resume: without, it is not a part of this run.
declare -A EARLIER=()
for manifest in "${OUTPUT_DIR}"/*/manifest.json; do
  EARLIER["${manifest}"]=1
done
[[ " $* " != *" --resume "* ]] || EARLIER=()

code=0
"${CBS[@]}" artifacts generate -name "${FILTER}" --framework "${FRAMEWORK}" -o "${OUTPUT_DIR}" "$@" \
  || code=$?
# 1: an export failed; 2: a file was wrong. Both are left out, and the manifest says why: all that is
# there is right.
if ((code > 2)) || [[ ! -d "${OUTPUT_DIR}" ]]; then
  exit "${code}"
fi
"${VENV_PYTHON}" -m pip list --disable-pip-version-check > "${OUTPUT_DIR}/models_version_info.txt"

UPLOAD_DIR="${GCS_UPLOAD_DIR%/}/$(basename "${OUTPUT_DIR}")"
for manifest in "${OUTPUT_DIR}"/*/manifest.json; do
  [[ -f "${manifest}" && -z "${EARLIER["${manifest}"]:-}" ]] || continue
  directory="$(dirname "${manifest}")"
  publish=("${directory}" "${UPLOAD_DIR}/$(basename "${directory}")")
  if [[ "${AUTO_UPLOAD:-0}" == 1 ]]; then
    "${CBS[@]}" artifacts publish "${publish[@]}" --auto-upload
  else
    echo "to publish: cbs artifacts publish ${publish[*]}"
  fi
done
exit "${code}"
