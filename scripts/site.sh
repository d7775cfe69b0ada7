#!/usr/bin/env bash
# Builds the documentation site into build/site. Uses no network if the environment exists.
#
#   ./scripts/site.sh            strict: a warning is an error
#   ./scripts/site.sh serve      serves it on http://127.0.0.1:8000 and follows changes
#
# Further options go to `mkdocs`.
set -euo pipefail
CDPATH="" cd "$(dirname "$0")/.."
source scripts/environment.sh

# The reference pages import the suite's packages; they do not need frameworks.
ensure_environment .venv requirements/dev.txt
ensure_packages .docs.venv requirements/docs.txt
export PYTHONPATH="${PWD}/.docs.venv${PYTHONPATH:+:${PYTHONPATH}}" NO_MKDOCS_2_WARNING=true
if [[ "${1:-}" == serve ]]; then
  exec .venv/bin/python -m mkdocs "$@"
fi
exec .venv/bin/python -m mkdocs build --strict --quiet "$@"
