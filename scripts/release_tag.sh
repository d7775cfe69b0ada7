#!/usr/bin/env bash
# Refuses a tag that differs from the version in pyproject.toml: `release_tag.sh v0.1.0`.
set -euo pipefail
CDPATH="" cd "$(dirname "$0")/.."

version="$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml)"
if [[ "${1:-}" != "v${version}" ]]; then
  echo "the tag is '${1:-}', but pyproject.toml has v${version}: nothing is released" >&2
  exit 1
fi
