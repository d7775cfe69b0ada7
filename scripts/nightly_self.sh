#!/usr/bin/env bash
# Measures what the suite promises about itself, and rewrites the table in benchmarks/README.md: three
# hours on two CPUs, for a machine that does nothing else meanwhile.
#
#   ./scripts/nightly_self.sh [--only NAME ...] [--quick]    as `python benchmarks/measure_all.py`
#
# CBS_VENV names the environment to use. Exit code: 1 if a script failed; a missed goal is in the table.
set -euo pipefail
source "$(dirname "$0")/nightly_environment.sh"

use_environment pt_inductor jax_xla tf_xla xla_hlo iree onnxruntime openvino tflite
exec python "${CBS_ROOT}/benchmarks/measure_all.py" "$@"
