#!/usr/bin/env bash
# Publishes the results of a night, imports them into the history, searches it for regressions, and
# makes and publishes a page.
#
#   nightly_publish.sh STORE FOLDER RESULTS_FILE...
#
# STORE is a gs:// URL or a directory. FOLDER contains the results of earlier nights (fetched from
# STORE once), `history.sqlite` (unless CBS_HISTORY is another database), and `night/` with
# report.html, report.md, regressions.yaml and issue.md (only if there is news). NIGHT is the name of
# the night (default: the time). Exit code: 2 if there is a regression, 1 if something failed, 3 if
# data are missing. The results are copied to the store before all other steps.
set -euo pipefail
source "$(dirname "$0")/nightly_environment.sh"

STORE="${1:?the store, e.g. gs://bucket/folder}"
FOLDER="${2:?a folder to work in}"
shift 2
for results in "$@"; do
  if [[ ! -f "${results}" ]]; then
    echo "no results file ${results}: nothing to publish" >&2
    exit 3
  fi
done
if (($# == 0)); then
  echo "no results file given" >&2
  exit 3
fi
use_environment

NIGHT="${NIGHT:-$(date -u +%Y%m%dT%H%M%SZ)}"
# In a variable, because every process on the machine can read command lines.
export CBS_HISTORY="${CBS_HISTORY:-sqlite:///$(mkdir -p "${FOLDER}" && cd "${FOLDER}" && pwd)/history.sqlite}"
EARLIER="${FOLDER}/nights"
NEW="${FOLDER}/night"
rm -rf "${NEW}"
mkdir -p "${EARLIER}" "${NEW}"
store=(python "${CBS_ROOT}/scripts/store.py")

for results in "$@"; do
  "${store[@]}" put "${STORE}" "${results}" "nights/${NIGHT}/$(basename "${results}")"
done

# The history can be made again from the store, so no night is lost with a machine.
"${store[@]}" sync "${STORE}" nights/ "${EARLIER}" --suffix .json
code=0
mapfile -t every < <(find "${EARLIER}" -path '*/nights/*/*.json' | sort)
cbs history import "${every[@]}" || code=$?
if ((code == 1)); then
  echo "nightly: not all results are in the history (see above), but all are in ${STORE}/nights" >&2
fi

looked=0
cbs history regressions --yaml "${NEW}/regressions.yaml" --issue "${NEW}/issue.md" \
  || looked=$?
echo "nightly: regressions: $(meaning "${looked}")" >&2
# Only news opens an issue, not a text without any.
if ((looked == 0)); then rm -f "${NEW}/issue.md"; fi
code="$(worse "${code}" "${looked}")"

report=(--history default --title "Night ${NIGHT}" -o "${NEW}/report.html" --markdown "${NEW}/report.md")
# Changes are relative to the same shard of the previous night.
before="$(find "${EARLIER}/nights" -mindepth 1 -maxdepth 1 ! -name "${NIGHT}" | sort | tail -n 1)"
if (($# == 1)) && [[ -n "${before}" && -f "${before}/$(basename "$1")" ]]; then
  report+=(--since "${before}/$(basename "$1")")
fi
shown=0
cbs report "$@" "${report[@]}" || shown=$?
if [[ ! -f "${NEW}/report.html" ]]; then
  echo "nightly: cannot create the page" >&2
  code="$(worse "${code}" "${shown}")"
fi

for file in report.html report.md regressions.yaml issue.md; do
  if [[ -s "${NEW}/${file}" ]]; then
    "${store[@]}" put "${STORE}" "${NEW}/${file}" "nights/${NIGHT}/${file}"
  fi
done
echo "nightly: ${STORE}/nights/${NIGHT}: $(meaning "${code}")" >&2
exit "${code}"
