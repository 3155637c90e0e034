#!/bin/sh
# scripts/fuzz.sh [SECONDS [WHAT...]]: builds the fuzz targets (tests/fuzz) with clang, address and undefined-behaviour
# sanitizers, and runs each, or those named, for so many seconds (20). An input that finds something is left in
# build/fuzz/found; once mended, put it into tests/fuzz/corpus/WHAT.
set -eu
cd "$(dirname "$0")/.."
scripts/setup.sh fuzz
seconds=${1:-20}
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- $(ls tests/fuzz/*_fuzz.cpp | sed 's,.*/,,; s,_fuzz.cpp,,')

echo "== fuzz: building (build/fuzz)"
cmake --preset fuzz >/dev/null
cmake --build build/fuzz --target $(printf '%s_fuzz ' "$@") -- -j "$(nproc)" ${CI:+--quiet}

mkdir -p build/fuzz/found
echo "== fuzz: $seconds s each: $*"
# What a target says of an input (errors, usage) is of no interest, so its output is closed; reports stay.
run='mkdir -p build/fuzz/corpus/$1
build/fuzz/tests/fuzz/$1_fuzz -max_total_time='$seconds' -max_len=2048 -timeout=20 -rss_limit_mb=2048 -close_fd_mask=3 \
  -artifact_prefix=build/fuzz/found/$1- build/fuzz/corpus/$1 tests/fuzz/corpus/$1 >build/fuzz/$1.log 2>&1 ||
  { tail -n 60 build/fuzz/$1.log; echo "== fuzz: $1 found something, see build/fuzz/found"; exit 1; }
tail -n 1 build/fuzz/$1.log | sed "s,^,$1: ,"'
printf '%s\n' "$@" | xargs -P "$(nproc)" -n 1 sh -c "$run" sh
