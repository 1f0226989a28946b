#!/usr/bin/env bash
# Creates the Python environment of tools/*.py, with the packages of tools/requirements.txt, and prints the path of its Python.
# All other output goes to standard error: MANTISSA_PYTHON=$(tools/python_env.sh) works. --path installs nothing: it prints the
# path, or fails if there is no environment.
#
#     tools/python_env.sh [--path]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

die() { printf 'python: %s\n' "$*" >&2; exit 2; }

readonly NEEDED_MB=7000  # torch brings the libraries of CUDA
[[ -n ${XDG_CACHE_HOME:-${HOME:-}} ]] || die "neither HOME nor XDG_CACHE_HOME is set; set one of them"
cache=${XDG_CACHE_HOME:-${HOME:-}/.cache}/mantissa
env=$cache/python
requirements=tools/requirements.txt

case ${1:-} in
  '') ;;
  --path) [[ -f $env/requirements.txt ]] && echo "$env/bin/python"; exit ;;
  *) die "expected no option or --path, got \"$1\"" ;;
esac

# The copy of the requirements is written last, so that an interrupted installation continues here.
if ! cmp -s "$requirements" "$env/requirements.txt"; then
  base=$(command -v python3) || die "there is no python3; install it"
  "$base" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    die "expected Python 3.11 or later, got $("$base" --version). Fix: install a later one, and put it first in PATH"
  mkdir -p "$cache" || die "$cache cannot be written; set XDG_CACHE_HOME to another directory"
  exec 9>"$env.lock"
  flock 9
  if [[ ! -x $env/bin/python ]]; then
    free=$(df -Pm "$cache" | awk 'NR == 2 {print $4}')
    ((free >= NEEDED_MB)) || die "the disk of $cache has $free MB left, and $NEEDED_MB MB are needed. Fix: free some,
        or set XDG_CACHE_HOME to a directory on another disk"
  fi
  "$base" -m venv "$env" >&2 || die "$base cannot create $env; install python3-venv"
  printf 'Installing the packages of %s into %s\n' "$requirements" "$env" >&2
  "$env/bin/python" -m pip install --quiet --disable-pip-version-check --no-input -r "$requirements" >&2 </dev/null ||
    die "pip could not install $requirements (see its message above). Fix: check the network, or set HTTPS_PROXY or
        PIP_INDEX_URL, and run it again"
  cp "$requirements" "$env/requirements.txt"
fi
echo "$env/bin/python"
