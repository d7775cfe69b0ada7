#!/usr/bin/env bash
# Builds the source distribution and, from that, the wheel into dist/ (or the folder that is named).
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/environment.sh

FOLDER="$(mkdir -p "${1:-dist}" && cd "${1:-dist}" && pwd)"
TOOLS="$(mktemp -d)"
trap 'rm -rf "${TOOLS}"' EXIT
"$(find_python)" -m venv "${TOOLS}/venv"
install "${TOOLS}/venv" build==1.6.1
"${TOOLS}/venv/bin/python" -m build --outdir "${FOLDER}" .
