#!/usr/bin/env bash
# Builds the documentation site into build/site. Reaches no network once the environment is there.
#
#   ./scripts/site.sh            strictly: a warning is an error
#   ./scripts/site.sh serve      shows it on http://127.0.0.1:8000 and follows changes
#
# Further options go to `mkdocs`.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/environment.sh

# The suite's own packages are there to be asked; frameworks are not needed.
ensure_environment .venv requirements/dev.txt
ensure_packages .docs.venv requirements/docs.txt
export PYTHONPATH="${PWD}/.docs.venv${PYTHONPATH:+:${PYTHONPATH}}" NO_MKDOCS_2_WARNING=true
if [[ "${1:-}" == serve ]]; then
  exec .venv/bin/python -m mkdocs "$@"
fi
exec .venv/bin/python -m mkdocs build --strict --quiet "$@"
