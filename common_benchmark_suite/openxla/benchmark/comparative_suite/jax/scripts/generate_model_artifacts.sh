#!/usr/bin/env bash
# Exports models in JAX: generate_model_artifacts.sh [FILTER] [...]; variables VENV_DIR, PYTHON,
# OUTPUT_DIR, GCS_UPLOAD_DIR and AUTO_UPLOAD are told in the script that it calls.
exec "$(dirname "$0")/../../scripts/generate_model_artifacts.sh" jax "$@"
