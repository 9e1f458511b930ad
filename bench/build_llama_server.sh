#!/usr/bin/env bash
# Builds llama.cpp's own server, from the sources in the sdist of llama-cpp-python, for bench/load.py compare.
# Usage: bench/build_llama_server.sh [JOBS]      (default 1; into $CARAT_PEERS, default ~/.cache/carat/peers)
# One translation unit takes up to a minute, the whole some 20 minutes of one CPU; it goes on where it was stopped.
set -euo pipefail

package=llama-cpp-python==0.3.36  # the version that bench/peers.py compares with
peers=${CARAT_PEERS:-$HOME/.cache/carat/peers}
work=$peers/llama-server-build
jobs=${1:-1}

if [[ ! -d $work/source ]]; then
  mkdir -p "$work/sdist"
  python3 -m pip download -q --no-deps --no-binary llama-cpp-python "$package" -d "$work/sdist"
  rm -rf "$work/unpacked"
  mkdir "$work/unpacked"
  tar -xzf "$work"/sdist/*.tar.gz -C "$work/unpacked" --strip-components=1
  mv "$work/unpacked/vendor/llama.cpp" "$work/source"
  rm -rf "$work/unpacked" "$work/sdist"
fi
# Static, for this CPU; without its page (fetched at build time) and without TLS.
nice -n 19 cmake -S "$work/source" -B "$work/build" -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF -DGGML_NATIVE=ON \
  -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_APP=OFF -DLLAMA_BUILD_TOOLS=ON \
  -DLLAMA_BUILD_SERVER=ON -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_OPENSSL=OFF > "$work/cmake.log" 2>&1
nice -n 19 cmake --build "$work/build" --target llama-server -j "$jobs" > "$work/build.log" 2>&1
install "$work/build/bin/llama-server" "$peers/llama-server"
"$peers/llama-server" --version
