#!/bin/sh
# nccl_overhead.sh NCCL_OVERHEAD
# Instructions of an 8-byte ncclAllReduce and of the C++ call beneath, counted by callgrind: the difference between runs of
# 1000 and 101000 calls, so that what starting takes, which varies, doesn't count. Prints both and what C adds.
set -eu
program=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
instructions() {
  valgrind --tool=callgrind --callgrind-out-file="$work/out" "$program" "$1" "$2" 2>"$work/log" || { cat "$work/log"; exit 1; }
  sed -n 's/^.*Collected : *//p' "$work/log"
}
per_call() { echo "$1 $(instructions "$1" 1000) $(instructions "$1" 101000)" | awk '{print ($3 - $2) / 100000}'; }
cpp=$(per_call cpp)
c=$(per_call c)
awk -v c="$c" -v cpp="$cpp" 'BEGIN {
  printf "8-byte all-reduce of one rank: %.1f instructions in C++, %.1f from C: %.2f %% more\n", cpp, c, 100 * (c - cpp) / cpp }'
