#!/usr/bin/env bash
# Runs every program build-fuzz/*_fuzz for the given seconds of one CPU (180), on its seeds in fuzz/corpus/<name>
# (templates: the models' own, in tests/fixtures/templates).
# A find is written to build-fuzz/finds/<name>/ and ends the run with 1; replay it with: build-fuzz/<name> FILE
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-180}

shopt -s nullglob
programs=(build-fuzz/*_fuzz)
if [[ ${#programs[@]} -eq 0 ]]; then
  echo "run_fuzzers: no programs build-fuzz/*_fuzz; build them with: make fuzz" >&2
  exit 1
fi
failed=()
for program in "${programs[@]}"; do
  name=$(basename "$program")
  corpus=build-fuzz/corpus/$name
  finds=build-fuzz/finds/$name
  mkdir -p "$corpus" "$finds"
  seeds=(fuzz/corpus/"${name%_fuzz}")
  [[ -d "${seeds[0]}" ]] || seeds=()
  if [[ $name == template_fuzz ]]; then cp tests/fixtures/templates/*.jinja "$corpus/"; fi
  echo "== $name: $seconds s"
  if ! "$program" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 -verbosity=0 \
       -artifact_prefix="$finds/" "$corpus" "${seeds[@]}" > "$corpus.log" 2>&1; then
    failed+=("$name")
    tail -n 40 "$corpus.log"
  fi
  sed -n 's/^stat::number_of_executed_units: */   inputs tried: /p' "$corpus.log"
done
if [[ ${#failed[@]} -gt 0 ]]; then
  echo "run_fuzzers: finds in ${failed[*]}" >&2
  exit 1
fi
echo "run_fuzzers: ${#programs[@]} programs, no find"
