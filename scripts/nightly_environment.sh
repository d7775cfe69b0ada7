# Sourced by the nightly's scripts: puts an environment with `cbs` first on the path.
#
#   use_environment BACKEND...
#
# CBS_VENV is an existing environment, which is used without changes. By default, .venv of the
# checkout is made or updated with the locks of the backends and the tools.
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

use_environment() {
  local venv="${CBS_VENV:-}" backend locks=()
  if [[ -z "${venv}" ]]; then
    venv="${CBS_ROOT}/.venv"
    for backend in "$@"; do
      # A backend may be named with a compiler: pt_inductor:eager.
      backend="${CBS_ROOT}/comparative_benchmark/${backend%%:*}/requirements.txt"
      # `cbs run` reports missing packages of other projects' backends.
      if [[ -f "${backend}" ]]; then locks+=("${backend}"); fi
    done
    if ((${#locks[@]})); then ensure_environment "${venv}" "${locks[@]}"; fi
    ensure_environment "${venv}" "${CBS_ROOT}/requirements/dev.txt"
  fi
  if [[ ! -x "${venv}/bin/cbs" ]]; then
    echo "no cbs in ${venv}: install this checkout there, or unset CBS_VENV" >&2
    return 1
  fi
  PATH="$(cd "${venv}" && pwd)/bin:${PATH}"
  export PATH
}

# The more important of two exit codes: wrong or slower results (2) come before a failed tool (1),
# and that before missing data (3).
worse() {
  local code
  for code in 2 1 3; do
    if [[ "$1" == "${code}" || "$2" == "${code}" ]]; then
      echo "${code}"
      return
    fi
  done
  # A signal, or another unexpected code.
  echo "$(($1 > $2 ? $1 : $2))"
}

meaning() {
  case "$1" in
    0) echo "no problems" ;;
    1) echo "something failed" ;;
    2) echo "a wrong output, or a regression" ;;
    3) echo "data is missing" ;;
    *) echo "exit code $1" ;;
  esac
}
