#!/usr/bin/env bash
# Builds the source distribution, and the wheel from it, into dist/ or the given folder.
set -euo pipefail
caller="${PWD}"
CDPATH="" cd "$(dirname "$0")/.."
source scripts/environment.sh

FOLDER="${1:-${PWD}/dist}"
[[ "${FOLDER}" == /* ]] || FOLDER="${caller}/${FOLDER}"
mkdir -p "${FOLDER}"
TOOLS="$(mktemp -d)"
trap 'rm -rf "${TOOLS}"' EXIT
"$(find_python)" -m venv "${TOOLS}/venv"
install "${TOOLS}/venv" build==1.6.1
"${TOOLS}/venv/bin/python" -m build --outdir "${FOLDER}" .
