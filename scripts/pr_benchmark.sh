#!/usr/bin/env bash
# Races the head of a pull request against its base, interleaved on this machine, and writes a table
# as Markdown.
#
#   PR_BODY='RUN_BENCHMARK: BERT_TINY_FP32_JAX jax_xla' BASE_SHA=main pr_benchmark.sh FOLDER
#
# Run it in a checkout of the pull request. BASE_SHA is a commit of the same repository; it is unpacked
# below FOLDER, and the checkout is not changed. Both sides run their own models, backends and harness.
# If their locked requirements differ, each side has a separate environment. FOLDER gets table.md and
# results.json. You can set DEVICE (default host-cpu) and CBS_RUN_OPTIONS (more options of `cbs run`).
# `torchbench/NAME` in the text races folders under CBS_TORCHBENCH, `bench/NAME` a script of the
# milabench configuration CBS_BENCH. These are the same on both sides; only the suite and the installed
# packages differ. A script runs unmodified in the environment of each side.
# `userbenchmark/NAME`, or TorchBench's line RUN_TORCHBENCH: NAME, runs a userbenchmark alternately on
# both sides, CBS_USERBENCHMARK_RUNS times (default 6, the minimum for a verdict), and compares its
# metrics by their intervals. Each side runs its version of a userbenchmark of this checkout. Others come
# from CBS_TORCHBENCH, a checkout of TorchBench, and are the same on both sides. CBS_RUN_OPTIONS are then
# the userbenchmark's arguments.
# Exit code: 0, 2 if something is slower or wrong, 1 if something failed, 3 if the text has no request
# or nothing could be compared.
set -euo pipefail
source "$(dirname "$0")/nightly_environment.sh"

FOLDER="${1:?a folder to work in}"
: "${BASE_SHA:?the commit that the proposal is based on}"
DEVICE="${DEVICE:-host-cpu}"
mkdir -p "${FOLDER}"
FOLDER="$(cd "${FOLDER}" && pwd)"

# Any user can write the text. A pipe passes it to a reader that prints only plain names.
FOUND_PYTHON="$(find_python)"
request="$(printf '%s' "${PR_BODY:-}" | "${FOUND_PYTHON}" "${CBS_ROOT}/scripts/pr_request.py")" || exit
{ read -r NAME; read -r BACKENDS; read -r KIND; } <<< "${request}"
what=(-name "${NAME}")
case "${KIND}" in
  torchbench)
    BACKENDS="${BACKENDS:-pt_inductor}"
    what+=(--torchbench "${CBS_TORCHBENCH:?the path of the folders that torchbench/NAME selects}")
    ;;
  bench)
    BACKENDS="${BACKENDS:-pt_inductor}" # scripts run in their environments
    : "${CBS_BENCH:?the milabench configuration that contains bench/NAME}"
    ;;
  userbenchmark) BACKENDS="${BACKENDS:-pt_inductor}" ;; # it runs in their environments
  *) BACKENDS="${BACKENDS:-jax_xla,pt_inductor}" ;;
esac
IFS=',' read -ra NAMED <<< "${BACKENDS}"
if ! git -C "${CBS_ROOT}" rev-parse --quiet --verify "${BASE_SHA}^{commit}" >/dev/null; then
  echo "no commit ${BASE_SHA} in this checkout; fetch it first" >&2
  exit 1
fi
# Later commits of the base are not the request's.
BASE_SHA="$(git -C "${CBS_ROOT}" merge-base HEAD "${BASE_SHA}" || echo "${BASE_SHA}")"
rm -rf "${FOLDER}/base"
mkdir -p "${FOLDER}/base"
git -C "${CBS_ROOT}" archive "${BASE_SHA}" | tar -x -C "${FOLDER}/base"

use_environment "${NAMED[@]}"
HEAD_PYTHON="$(command -v python)"
BASE_PYTHON="${HEAD_PYTHON}"
locks=()
for backend in "${NAMED[@]}"; do
  lock="comparative_benchmark/${backend%%:*}/requirements.txt"
  if [[ -f "${FOLDER}/base/${lock}" ]]; then
    locks+=("${FOLDER}/base/${lock}")
    cmp -s "${CBS_ROOT}/${lock}" "${FOLDER}/base/${lock}" || BASE_PYTHON=""
  fi
done
if [[ -z "${BASE_PYTHON}" ]]; then
  # Another base may have other locks.
  base_venv="${FOLDER}/base-$(cat "${locks[@]}" | sha256sum | cut -c1-12).venv"
  ensure_environment "${base_venv}" "${locks[@]}"
  BASE_PYTHON="${base_venv}/bin/python"
fi

# Quotes a word for any shell; bash's %q writes $'...', which /bin/sh may not support.
quoted() { printf "'%s'" "${1//\'/\'\\\'\'}"; }
# An interpreter that imports the suite from a checkout, which comes first on the path.
interpreter() {
  local checkout="$1" python="$2" file="$3"
  printf '#!/bin/sh\nexport PYTHONPATH=%s:%s${PYTHONPATH:+:$PYTHONPATH}\nexec %s "$@"\n' \
    "$(quoted "${checkout}")" "$(quoted "${checkout}/common_benchmark_suite")" \
    "$(quoted "${python}")" > "${file}"
  chmod +x "${file}"
}
interpreter "${FOLDER}/base" "${BASE_PYTHON}" "${FOLDER}/base-python"
interpreter "${CBS_ROOT}" "${HEAD_PYTHON}" "${FOLDER}/head-python"

rm -f "${FOLDER}/results.json"
read -ra more <<< "${CBS_RUN_OPTIONS:-}"
describe="$(git -C "${CBS_ROOT}" rev-parse --short HEAD) against $(git -C "${CBS_ROOT}" rev-parse --short "${BASE_SHA}")"

# Runs a userbenchmark on both sides, adds its table to table.md, and returns the comparison's code.
race_userbenchmark() {
  local name="$1" out="${FOLDER}/userbenchmark/$1" runs="${CBS_USERBENCHMARK_RUNS:-6}"
  local elsewhere side turn order code=0
  elsewhere="$("${FOUND_PYTHON}" "${CBS_ROOT}/scripts/pr_request.py" --folder-of "${name}")"
  local -A folder=([base]="${elsewhere:-${FOLDER}/base/userbenchmark}" [head]="${elsewhere:-${CBS_ROOT}/userbenchmark}")
  if [[ ! -d "${folder[base]}/${name}" ]]; then
    echo "the base has no userbenchmark ${name}, so there is nothing to compare it with" >&2
    return 3
  fi
  rm -rf "${out}"
  for ((turn = 0; turn < runs; turn++)); do
    # Each side is first equally often, so that drift affects both.
    if ((turn % 2)); then order=(head base); else order=(base head); fi
    for side in "${order[@]}"; do
      code=0
      "${FOLDER}/${side}-python" -P -m comparative_benchmark userbenchmark run \
        --directory "${folder[${side}]}" -o "${out}/${side}" "${name}" "${more[@]}" || code=$?
      # Metrics of wrong outputs (2) and of missing ones (3) have a status instead of a number.
      if ((code != 0 && code != 2 && code != 3)); then
        echo "userbenchmark ${name} failed on the ${side}" >&2
        return "${code}"
      fi
    done
  done
  code=0
  cbs userbenchmark compare "${out}/base/${name}" "${out}/head/${name}" \
    --markdown "${out}/table.md" || code=$?
  if [[ ! -f "${out}/table.md" ]]; then return "${code}"; fi
  { printf '%s\n\n' "### Userbenchmark: ${name}, ${describe}"; tail -n +3 "${out}/table.md"; echo; } \
    >> "${FOLDER}/table.md"
  return "${code}"
}

if [[ "${KIND}" == userbenchmark ]]; then
  rm -f "${FOLDER}/table.md"
  IFS='|' read -ra names <<< "${NAME}"
  all=0
  for name in "${names[@]}"; do
    one=0
    race_userbenchmark "${name}" || one=$?
    all="$(worse "${all}" "${one}")"
  done
  if [[ -f "${FOLDER}/table.md" ]]; then cat "${FOLDER}/table.md"; fi
  exit "${all}"
fi
processes=6 # The minimum for exit code 2.
ran=0
if [[ "${KIND}" == bench ]]; then
  cbs bench run --config "${CBS_BENCH}" --select "${NAME}" --repeat "${processes}" --no-report \
    --env "base=${BASE_PYTHON},head=${HEAD_PYTHON}" \
    -o "${FOLDER}/results.json" "${more[@]}" || ran=$?
else
  cbs run --backend "${BACKENDS}" -device "${DEVICE}" "${what[@]}" \
    --env "base=${FOLDER}/base-python,head=${FOLDER}/head-python" \
    --processes "${processes}" -o "${FOLDER}/results.json" "${more[@]}" || ran=$?
fi
if [[ ! -f "${FOLDER}/results.json" ]]; then
  exit "${ran}"
fi
compared=0
python "${CBS_ROOT}/scripts/race_table.py" "${FOLDER}/results.json" base head \
  "### Benchmark: ${NAME} (${BACKENDS}, ${DEVICE}), ${describe}" > "${FOLDER}/table.md" || compared=$?
cat "${FOLDER}/table.md"
exit "$(worse "${ran}" "${compared}")"
