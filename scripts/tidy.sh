#!/bin/sh
# scripts/tidy.sh [FILE...]: clang-tidy over the given files, or over the library, the tools and the benches.
set -eu
cd "$(dirname "$0")/.."
command -v clang-tidy >/dev/null || { echo "tidy.sh: clang-tidy is needed (apt-get install clang-tidy)" >&2; exit 1; }
cmake --preset ci >/dev/null
[ $# -gt 0 ] || set -- $(find src transports topology tools bench/perf bench/*_perf.cpp -name '*.cpp' | sort)
printf '%s\n' "$@" | xargs -P "$(nproc)" -n 1 clang-tidy --quiet --extra-arg=-Wno-unknown-warning-option -p build/ci
