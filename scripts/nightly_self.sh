#!/usr/bin/env bash
# Measures the goals of the suite for itself, and rewrites the table in benchmarks/README.md. Takes
# three hours on two CPUs of an otherwise idle machine.
#
#   ./scripts/nightly_self.sh [--only NAME ...] [--quick]    as `python benchmarks/measure_all.py`
#
# CBS_VENV is the environment to use. Exit code: 1 if a script failed. The table shows missed goals.
set -euo pipefail
source "$(dirname "$0")/nightly_environment.sh"

use_environment pt_inductor jax_xla tf_xla xla_hlo iree onnxruntime openvino tflite
exec python "${CBS_ROOT}/benchmarks/measure_all.py" "$@"
