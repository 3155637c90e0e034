#!/bin/sh
# scripts/nccl_tests.sh SOURCE BUILD [OPTIONS...]: NVIDIA's nccl-tests, unmodified, on our libnccl.so.2 and simulated GPUs. SOURCE: a folder
# with them, or an address for git clone (https://github.com/NVIDIA/nccl-tests.git). BUILD: a build tree with its tests built.
# OPTIONS: of each program; if none is given, two GPUs driven by one thread, by a thread each, in graphs, and with registered
# buffers, and all types and operations. Says of each program PASS or FAIL; status 0 if none failed, 77 if nothing can be run.
set -eu
[ $# -ge 2 ] || { sed -n '2,/^set/s/^# //p' "$0" >&2; exit 2; }
source=$1 build=$(cd "$2" && pwd)
shift 2
skip() { echo "SKIP nccl-tests: $1"; exit 77; }
nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null) || skip "nvcc was not found"
simulator=$build/tests/cuda_sim/plain
[ -e "$simulator/libcuda.so.1" ] || skip "$simulator has no simulated CUDA runtime"
library=$build/tests/cuda_sim/library
[ -e "$library/libnccl.so.2" ] || skip "$library has no libnccl.so.2"

work=$build/nccl-tests
mkdir -p "$work"
if [ -d "$source" ]; then
  rm -rf "$work/source"
  cp -r "$source" "$work/source"
elif [ ! -d "$work/source" ]; then
  git clone -q --depth 1 "$source" "$work/source" || skip "$source can't be had"
fi
# The toolkit's nccl.h, since its nccl_device.h declares what ours does, too.
toolkit=$(dirname "$(dirname "$nvcc")")
make -s -C "$work/source/src" -j "$(nproc)" build BUILDDIR="$work/programs" CUDA_HOME="$toolkit" CUDARTLIB=cudart NCCL_HOME=/nonexistent \
  NVCC_GENCODE="-gencode=arch=compute_90,code=compute_90" LIBRARY_PATH="$library" >"$work/make.log" 2>&1 || { tail -n 20 "$work/make.log"; exit 1; }

failed=0
# run OPTION...: all programs.
run() {
  echo "== $*"
  for name in all_reduce all_gather reduce_scatter broadcast reduce alltoall alltoallv gather scatter sendrecv hypercube; do
    if LD_LIBRARY_PATH=$simulator:$library timeout 200 "$work/programs/${name}_perf" "$@" >"$work/$name.log" 2>&1 &&
      grep -q 'Out of bounds values : 0 OK' "$work/$name.log"; then
      echo "PASS $name"
    else
      echo "FAIL $name: $(grep -i -E 'error|failed|warn|out of bounds' "$work/$name.log" | tail -n 1)"
      failed=1
    fi
  done
}
if [ $# -gt 0 ]; then
  run "$@"
else
  run -b 8 -e 64K -f 32 -n 2 -w 1 -g 2
  run -b 8 -e 64K -f 32 -n 2 -w 1 -t 2
  run -b 8 -e 64K -f 32 -n 2 -w 1 -g 2 -G 2
  run -b 8 -e 64K -f 32 -n 2 -w 1 -g 2 -R 1
  run -b 1K -e 1K -n 1 -w 0 -g 2 -d all -o all
fi
exit $failed
