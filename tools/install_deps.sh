#!/usr/bin/env bash
# Installs the Debian packages that are missing, and asks apt nothing when none is.
# Usage: tools/install_deps.sh [build|clang|format|arm64|web|deploy]…     (default: build)
set -euo pipefail

build=(g++ cmake ninja-build ccache python3 nlohmann-json3-dev libcli11-dev libfmt-dev libspdlog-dev libgtest-dev
       libgmock-dev libbenchmark-dev libssl-dev libutf8proc-dev libboost1.81-dev prometheus-cpp-dev
       libcurl4-openssl-dev libedit-dev pkgconf)
clang=(clang-16 libclang-rt-16-dev)
format=(clang-format-16 clang-tidy-16)
arm64=(g++-aarch64-linux-gnu qemu-user)
web=(chromium fonts-dejavu-core python3-venv)
deploy=(nginx-light openssl python3-yaml)

wanted=()
for group in "${@:-build}"; do
  case "$group" in
    build) wanted+=("${build[@]}") ;;
    clang) wanted+=("${clang[@]}") ;;
    format) wanted+=("${format[@]}") ;;
    arm64) wanted+=("${arm64[@]}") ;;
    web) wanted+=("${web[@]}") ;;
    deploy) wanted+=("${deploy[@]}") ;;
    *) echo "install_deps: unknown group '$group'; there are build, clang, format, arm64, web, deploy" >&2; exit 2 ;;
  esac
done

if ! command -v dpkg-query > /dev/null; then
  echo "install_deps: no dpkg here: on this system install the counterparts of: ${wanted[*]}" >&2
  exit 0
fi

# dpkg-query fails when it does not know one of them, and still tells about the others.
known=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "${wanted[@]}" 2> /dev/null || true)
installed=" $(sed -n 's/^installed //p' <<< "$known" | tr '\n' ' ') "
missing=()
for package in "${wanted[@]}"; do
  [[ "$installed" == *" $package "* ]] || missing+=("$package")
done
# The model fetch needs a pip, whichever python3 it belongs to. `-c` is much quicker than running pip.
if [[ " ${wanted[*]} " == *" python3 "* ]] && ! python3 -c 'import importlib.util as u, sys
sys.exit(u.find_spec("pip") is None)' 2> /dev/null && ! command -v pip3 > /dev/null; then
  missing+=(python3-pip)
fi
if [[ ${#missing[@]} -eq 0 ]]; then exit 0; fi

as_root=()
if [[ "$(id -u)" -ne 0 ]]; then
  if ! command -v sudo > /dev/null; then
    echo "install_deps: as root, run: apt-get install -y --no-install-recommends ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
echo "install_deps: installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt=("${as_root[@]}" apt-get -qq -o Dpkg::Use-Pty=0 -o Acquire::Retries=3)
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { "${apt[@]}" update && "${apt[@]}" install -y --no-install-recommends "${missing[@]}"; } > "$log" 2>&1; then
  tail -n 20 "$log" >&2
  echo "install_deps: apt-get could not install: ${missing[*]}" >&2
  exit 1
fi
