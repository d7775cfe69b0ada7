#!/usr/bin/env bash
# Runs the nightly workflow on this machine: artifacts, races, history, regressions and page, which
# are published to a store.
#
#   ./scripts/nightly.sh --tiny                     some tiny cases and two backends: minutes
#   ./scripts/nightly.sh --store gs://bucket/suite  the cases of nightly_cases.sh, every backend
#
#   --tiny            tiny cases, JAX and PyTorch
#   --store URL       gs:// or a directory (default: CBS_STORE; without one, a storage emulator on
#                     loopback that keeps its files under the folder)
#   --folder DIR      files that stay between nights (default: results/nightly)
#   --device NAME     default host-cpu
#   --backend LIST    as in `cbs run`
#   --name REGEX      as in `cbs run -name`
#   --torchbench PATH folders of TorchBench to run in addition (or CBS_TORCHBENCH)
#   --bench FILE      a milabench configuration to run in addition (or CBS_BENCH)
#   further options go to `cbs run`, after --
#
# CBS_VENV is the environment to use, CBS_HISTORY the database of the history. Exit code: 2 for a
# wrong output or a regression, 1 if something failed, 3 if data are missing, 0 otherwise.
set -euo pipefail
source "$(dirname "$0")/nightly_environment.sh"

TINY=0 STORE="${CBS_STORE:-}" FOLDER="results/nightly" DEVICE="host-cpu" BACKENDS="" NAME=""
while (($#)); do
  case "$1" in
    --tiny) TINY=1; shift ;;
    --store) STORE="$2"; shift 2 ;;
    --folder) FOLDER="$2"; shift 2 ;;
    --device) DEVICE="$2"; shift 2 ;;
    --backend) BACKENDS="$2"; shift 2 ;;
    --name) NAME="$2"; shift 2 ;;
    --torchbench) export CBS_TORCHBENCH="$2"; shift 2 ;;
    --bench) export CBS_BENCH="$2"; shift 2 ;;
    --) shift; break ;;
    *) echo "unknown option $1; see the top of $0" >&2; exit 1 ;;
  esac
done

# Report this before the cases run.
for given in "${CBS_TORCHBENCH:-}" "${CBS_BENCH:-}"; do
  [[ -z "${given}" || -e "${given}" ]] || { echo "nightly: ${given} does not exist" >&2; exit 1; }
done

MODELS=""
if ((TINY)); then
  MODELS='BERT_TINY_FP32_(JAX|PT)_32XI32_BATCH1'
  NAME="${NAME:-models/${MODELS}/.+DEFAULT}"
  BACKENDS="${BACKENDS:-jax_xla,pt_inductor:eager}"
  # Six processes are the minimum for exit code 2.
  set -- --processes 6 --trial-budget 5 "$@"
fi
BACKENDS="${BACKENDS:-pt_inductor,jax_xla,tf_xla,xla_hlo,iree,onnxruntime,openvino,tflite}"
source "${CBS_ROOT}/scripts/nightly_cases.sh"
NAME="${NAME:-${NIGHTLY_CASES}}"

IFS=',' read -ra NAMED <<< "${BACKENDS}"
use_environment "${NAMED[@]}"
CBS_VENV="$(dirname "$(dirname "$(command -v cbs)")")"
export CBS_VENV
mkdir -p "${FOLDER}"
FOLDER="$(cd "${FOLDER}" && pwd)"
rm -rf "${FOLDER}/night"

if [[ -z "${STORE}" ]]; then
  PORT="$(python -c "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1])")"
  # Its files are in the folder, so that the next night finds this night's results.
  python -m gcp_storage_emulator --data-dir "${FOLDER}/store" start --host 127.0.0.1 \
    --port "${PORT}" --default-bucket nightly --quiet >"${FOLDER}/emulator.log" 2>&1 &
  EMULATOR=$!
  trap 'kill "${EMULATOR}" 2>/dev/null; wait "${EMULATOR}" 2>/dev/null || true' EXIT
  export STORAGE_EMULATOR_HOST="http://127.0.0.1:${PORT}"
  for _ in {1..100}; do
    (exec 3<>"/dev/tcp/127.0.0.1/${PORT}") 2>/dev/null && break
    kill -0 "${EMULATOR}" 2>/dev/null || { cat "${FOLDER}/emulator.log" >&2; exit 1; }
    sleep 0.1
  done
  STORE="gs://nightly/suite"
fi

# The first night makes and publishes the artifacts of the tiny models. The suite's artifacts are
# locked in artifacts/locks; update_artifacts.sh publishes them.
made=0
if ((TINY)); then
  export CBS_LOCKS_DIR="${FOLDER}/locks"
  export CBS_ROOT_DIR="${CBS_ROOT_DIR:-${FOLDER}/root}"
  if [[ ! -f "${CBS_LOCKS_DIR}/tiny.json" ]]; then
    # Made in another root, so that the run uses the published and fetched files.
    CBS_ROOT_DIR="${FOLDER}/made" "${CBS_ROOT}/scripts/update_artifacts.sh" \
      "${STORE}/artifacts" "${MODELS}" "${CBS_LOCKS_DIR}/tiny.json" \
      --types inputs,outputs,truth,workload,checkpoint,stablehlo_mlir || made=$?
    rm -rf "${FOLDER}/made"
    echo "nightly: artifacts: $(meaning "${made}")" >&2
    if ((made != 0 && made != 2)); then
      exit "${made}"
    fi
  fi
fi

export NIGHT="${NIGHT:-$(date -u +%Y%m%dT%H%M%SZ)}"
RESULTS="${FOLDER}/runs/${NIGHT}/${DEVICE}.json"
mkdir -p "$(dirname "${RESULTS}")"
ran=0
"${CBS_ROOT}/scripts/nightly_shard.sh" "${DEVICE}" "${BACKENDS}" "${NAME}" "${RESULTS}" "$@" || ran=$?
echo "nightly: run: $(meaning "${ran}")" >&2
published=0
if [[ -f "${RESULTS}" ]]; then
  "${CBS_ROOT}/scripts/nightly_publish.sh" "${STORE}" "${FOLDER}" "${RESULTS}" || published=$?
fi
code="$(worse "$(worse "${made}" "${ran}")" "${published}")"
echo "nightly: $(meaning "${code}")" >&2
if [[ -f "${FOLDER}/night/report.html" ]]; then
  echo "nightly: the page is ${FOLDER}/night/report.html" >&2
fi
exit "${code}"
