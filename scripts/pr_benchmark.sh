#!/usr/bin/env bash
# Races what a pull request proposes against what it is based on, on this machine, in turns, and writes
# a table as Markdown.
#
#   PR_BODY='RUN_BENCHMARK: BERT_TINY_FP32_JAX jax_xla' BASE_SHA=main pr_benchmark.sh FOLDER
#
# Run it in a checkout of what is proposed. BASE_SHA is a commit of the same repository; it is unpacked
# below FOLDER, and the checkout stays as it is. Both sides run their own models, backends and harness;
# where their locked requirements differ, each has an environment of its own. FOLDER gets table.md and
# results.json. DEVICE (default host-cpu) and CBS_RUN_OPTIONS (further options of `cbs run`) may be set.
# `torchbench/NAME` in the text races folders under CBS_TORCHBENCH, `bench/NAME` a script of the milabench
# configuration CBS_BENCH: these are the same on both sides, and what differs is the suite and what is
# installed. A script runs in the environment of each side, as it is.
# `userbenchmark/NAME`, or TorchBench's line RUN_TORCHBENCH: NAME, runs a userbenchmark on each side in
# turns, CBS_USERBENCHMARK_RUNS times (default 6, which a verdict needs), and compares its metrics by
# their intervals. Each side runs its version of a userbenchmark of this checkout. Others come from
# CBS_TORCHBENCH, a checkout of TorchBench, and are equal on both sides. CBS_RUN_OPTIONS are then the userbenchmark's arguments.
# Exit code: 0, 2 if something is slower or wrong, 1 if something failed, 3 if nothing is asked for or
# nothing could be compared.
set -euo pipefail
source "$(dirname "$0")/nightly_environment.sh"

FOLDER="${1:?a folder to work in}"
: "${BASE_SHA:?the commit that the proposal is based on}"
DEVICE="${DEVICE:-host-cpu}"
mkdir -p "${FOLDER}"
FOLDER="$(cd "${FOLDER}" && pwd)"

# The text is anybody's: it goes through a pipe into a reader that lets only plain names out.
FOUND_PYTHON="$(find_python)"
code=0
request="$(printf '%s' "${PR_BODY:-}" | "${FOUND_PYTHON}" "${CBS_ROOT}/scripts/pr_request.py")" || code=$?
if ((code != 0)); then
  exit "${code}"
fi
{ read -r NAME; read -r BACKENDS; read -r KIND; } <<< "${request}"
what=(-name "${NAME}")
case "${KIND}" in
  torchbench)
    BACKENDS="${BACKENDS:-pt_inductor}"
    what+=(--torchbench "${CBS_TORCHBENCH:?the folders that torchbench/NAME is one of}")
    ;;
  bench)
    BACKENDS="${BACKENDS:-pt_inductor}" # whose environments scripts run in
    : "${CBS_BENCH:?the milabench configuration that bench/NAME is of}"
    ;;
  userbenchmark) BACKENDS="${BACKENDS:-pt_inductor}" ;; # whose environments it runs in
  *) BACKENDS="${BACKENDS:-jax_xla,pt_inductor}" ;;
esac
IFS=',' read -ra NAMED <<< "${BACKENDS}"
if ! git -C "${CBS_ROOT}" rev-parse --quiet --verify "${BASE_SHA}^{commit}" >/dev/null; then
  echo "no commit ${BASE_SHA} in this checkout; fetch it first" >&2
  exit 1
fi
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
  ensure_environment "${FOLDER}/base.venv" "${locks[@]}"
  BASE_PYTHON="${FOLDER}/base.venv/bin/python"
fi

# A word as any shell reads it; bash's own %q writes $'...', which /bin/sh may not know.
quoted() { printf "'%s'" "${1//\'/\'\\\'\'}"; }
# An interpreter that takes the suite from a checkout, whatever else is on the path.
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
    # Each side is first as often as the other: what drifts, drifts for both.
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
processes=6 # Exit code 2 needs so many.
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
told=0
python "${CBS_ROOT}/scripts/race_table.py" "${FOLDER}/results.json" base head \
  "### Benchmark: ${NAME} (${BACKENDS}, ${DEVICE}), ${describe}" > "${FOLDER}/table.md" || told=$?
cat "${FOLDER}/table.md"
exit "$(worse "${ran}" "${told}")"
