#!/usr/bin/env bash
# Cross-builds the kernels and their tests for 64-bit ARM and runs them under qemu-user: the tables neon and i8mm against
# ref on a machine that is not ARM. Usage: tools/test_neon.sh [option of the test program]…
# Exit code 77, which ctest counts as skipped, when the compiler, the emulator or googletest's sources are missing.
set -euo pipefail
cd "$(dirname "$0")/.."

if [[ "$(uname -m)" == aarch64 ]]; then
  echo "test_neon: not run: this machine is ARM, where kernels_test itself runs these tables"
  exit 77
fi
for program in aarch64-linux-gnu-g++ qemu-aarch64; do
  if ! command -v "$program" > /dev/null; then
    what="no cross compiler"
    [[ "$program" == qemu-aarch64 ]] && what="no emulator"
    echo "test_neon: not run: $what ($program); make test-neon installs it"
    exit 77
  fi
done
if [[ ! -d /usr/src/googletest ]]; then
  echo "test_neon: not run: no sources of googletest in /usr/src/googletest (package libgtest-dev)"
  exit 77
fi

folder=build-arm64
if [[ ! -f "$folder/build.ninja" ]]; then
  cmake -G Ninja -S tests/arm64 -B "$folder" -DCMAKE_TOOLCHAIN_FILE="$PWD/cmake/aarch64.cmake" \
    -DCMAKE_BUILD_TYPE=Release --log-level=WARNING > /dev/null
fi
cmake --build "$folder" -j "${JOBS:-$(nproc)}" -- --quiet
mapfile -t objects < <(find "$folder" -path '*/kernels/neon/*.o')
python3 tools/check_isa_symbols.py "${objects[@]}"

# One shard a processor. The libraries of the target are those of the cross compiler.
export QEMU_LD_PREFIX=/usr/aarch64-linux-gnu
shards="${JOBS:-$(nproc)}"
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
pids=()
for ((i = 0; i < shards; i++)); do
  GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$i qemu-aarch64 -cpu max "$folder/kernels_test" --gtest_brief=1 "$@" \
    > "$logs/$i" 2>&1 &
  pids+=($!)
done
failed=0
for ((i = 0; i < shards; i++)); do
  wait "${pids[$i]}" || failed=1
  cat "$logs/$i"
done

# A processor with SDOT and without SMMLA: the best table is neon, and i8mm must not be offered.
tables=$(qemu-aarch64 -cpu neoverse-n1 "$folder/kernels_test" --gtest_list_tests | grep -c i8mm || true)
[[ "$tables" == 0 ]] || { echo "test_neon: i8mm is offered on a processor without it" >&2; exit 1; }
exit "$failed"
