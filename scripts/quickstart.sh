#!/bin/sh
# From a bare Debian 12 machine to a measurement: installs packages, builds, and runs all-reduce on two ranks, as
# threads of one process and as two processes.
set -eu
cd "$(dirname "$0")/.."
echo "Muster moves and combines data between ranks. This installs packages, builds for some minutes (up to 9 on 2 cores), then measures
all-reduce of 8 bytes to 128 MiB: time, bandwidth, and whether each element is right."
scripts/setup.sh

echo "== building (build/release)"
cmake --preset release -DMUSTER_UNITY=ON -DMUSTER_TESTS=OFF >/dev/null
cmake --build --preset release --target muster_tool all_reduce_perf
bin=build/release

echo "== two ranks, threads of one process"
$bin/bench/all_reduce_perf -b 8 -e 128M -f 2 -g 2
echo "== two ranks, two processes"
$bin/tools/muster run -n 2 $bin/bench/all_reduce_perf -b 8 -e 128M -f 2
