#!/bin/sh
# From a bare Debian 12 machine to a measurement: installs packages, builds, and runs all-reduce on two ranks, as
# threads of one process and as two processes.
set -eu
cd "$(dirname "$0")/.."
scripts/setup.sh

echo "== building (build/release)"
cmake --preset release >/dev/null
cmake --build --preset release --target muster_tool all_reduce_perf
bin=build/release

echo "== two ranks, threads of one process"
$bin/bench/all_reduce_perf -b 8 -e 128M -f 2 -g 2
echo "== two ranks, two processes"
$bin/tools/muster run -n 2 $bin/bench/all_reduce_perf -b 8 -e 128M -f 2
