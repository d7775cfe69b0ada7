# Sourced by the other scripts: makes or reuses a virtual environment.
#
#   ensure_environment DIR LOCK...    installs the locks and this checkout into DIR
#   ensure_packages DIR LOCK          puts packages into DIR, for processes with DIR on PYTHONPATH
#
# PYTHON chooses the interpreter (default: the first of python3.11, 3.12, 3.13, python3 that is
# supported). uv installs the packages; CBS_USE_UV=0 uses pip alone.

# Otherwise, `cd` could go elsewhere, and print where.
unset CDPATH
UV_VERSION=0.13.9
CBS_ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"

supported_python() {
  "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' >/dev/null 2>&1
}

version_of() {
  "$1" -c 'import sys; print(sys.version_info[:2])' 2>&1
}

find_python() {
  if [[ -n "${PYTHON:-}" ]]; then
    supported_python "${PYTHON}" && { echo "${PYTHON}"; return; }
    echo "PYTHON=${PYTHON} is not Python 3.11 to 3.13" >&2
    return 1
  fi
  local candidate
  for candidate in python3.11 python3.12 python3.13 python3; do
    supported_python "${candidate}" && { echo "${candidate}"; return; }
  done
  echo "no Python 3.11 to 3.13 found; install one, or set PYTHON=/path/to/python" >&2
  return 1
}

# Prints the path of uv: the one on PATH, or one that pip puts into the environment.
find_uv() {
  local venv="$1"
  [[ "${CBS_USE_UV:-1}" == 0 ]] && return 1
  command -v uv && return
  [[ -x "${venv}/bin/uv" ]] \
    || "${venv}/bin/python" -m pip install -qq --disable-pip-version-check "uv==${UV_VERSION}" \
      >/dev/null 2>&1 || return 1
  echo "${venv}/bin/uv"
}

# uv takes a third of pip's time. If uv cannot be installed or fails, pip does the work.
install() {
  local venv="$1" uv
  shift
  if uv="$(find_uv "${venv}")" && install_with_uv "${uv}" "${venv}" "$@"; then
    return
  fi
  # -q twice: warnings about a machine's index settings do not help here.
  "${venv}/bin/python" -m pip install -qq --disable-pip-version-check "$@"
}

install_with_uv() (
  uv="$1" venv="$2"
  shift 2
  settings="$("${venv}/bin/python" "${CBS_ROOT}/scripts/uv_settings.py")" || exit 1
  eval "${settings}"
  # Compile byte code now; otherwise the first process that imports a framework is slow.
  exec "${uv}" pip install --quiet --compile-bytecode --python "${venv}/bin/python" "$@"
)

# The inputs of an environment in one line. While they stay the same, nothing is installed.
fingerprint() {
  {
    cat "$@" "${CBS_ROOT}/pyproject.toml" "${CBS_ROOT}/scripts/environment.sh"
    "${FOUND_PYTHON}" -c 'import sys; print(sys.version, sys.base_prefix)'
    echo "${CBS_ROOT}"
  } | sha256sum | cut -d' ' -f1
}

# Of all locks: another revision may have put its packages into the same environment meanwhile.
fingerprint_of_locks() {
  fingerprint "${CBS_ROOT}"/comparative_benchmark/*/requirements.txt "${CBS_ROOT}"/requirements/*.txt
}

ensure_environment() {
  local venv="$1" lock locks=() stamp
  shift
  FOUND_PYTHON="$(find_python)" || return 1
  for lock in "$@"; do locks+=(--requirement "${lock}"); done
  # One stamp for each set of locks, since the tests add packages to the quickstart's.
  stamp="${venv}/.cbs-stamp-$(echo "$*" | sha256sum | cut -c1-12)"
  local wanted other
  wanted="$(fingerprint_of_locks)"
  if [[ -f "${stamp}" && "$(cat "${stamp}")" == "${wanted}" ]]; then
    return 0
  fi
  if [[ -n "${PYTHON:-}" && -x "${venv}/bin/python" \
    && "$(version_of "${PYTHON}")" != "$(version_of "${venv}/bin/python")" ]]; then
    echo "${venv} has another version than PYTHON=${PYTHON}; remove it first" >&2
    return 1
  fi
  echo "installing the environment ${venv} (once; takes some minutes) ..." >&2
  for other in "${venv}"/.cbs-stamp-*; do
    [[ ! -f "${other}" || "$(cat "${other}")" == "${wanted}" ]] || rm "${other}"
  done
  # A folder that was left half made, or that uv has made, lacks pip.
  if ! "${venv}/bin/python" -m pip --version >/dev/null 2>&1 \
    || ! supported_python "${venv}/bin/python"; then
    "${FOUND_PYTHON}" -m venv "${venv}" || return 1
  fi
  install "${venv}" "${locks[@]}" || return 1
  install "${venv}" --no-deps --editable "${CBS_ROOT}" || return 1
  echo "${wanted}" > "${stamp}"
}

# These packages are not in .venv, because they would change every measurement there: transformers
# imports torchao if it is installed. The lock contains all packages that .venv lacks, so nothing
# else is installed.
ensure_packages() {
  local folder="$1" lock="$2" wanted
  FOUND_PYTHON="$(find_python)" || return 1
  wanted="$(fingerprint "${lock}")"
  if [[ -f "${folder}/.cbs-stamp" && "$(cat "${folder}/.cbs-stamp")" == "${wanted}" ]]; then
    return 0
  fi
  rm -rf "${folder}"
  install .venv --no-deps --target "${folder}" --requirement "${lock}" || return 1
  echo "${wanted}" > "${folder}/.cbs-stamp"
}
