#!/bin/sh
# scripts/cuda_kernels.sh [ARCHITECTURE...]: compiles the kernels for real GPUs (75 80 90 100 120 if none is named) and prints, of each
# kernel and architecture, registers, spilled bytes and local memory. Fails where one spills, uses local memory, or has more
# registers than blocks of 512 threads leave. NVCC: another compiler than the one found.
set -eu
cd "$(dirname "$0")/.."
nvcc=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
[ -x "$nvcc" ] || { echo "cuda_kernels.sh: nvcc, of the CUDA toolkit, was not found" >&2; exit 2; }
[ $# -gt 0 ] || set -- 75 80 90 100 120
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
flags=""
for architecture; do flags="$flags -gencode arch=compute_$architecture,code=sm_$architecture"; done
for file in src/exec/cuda/*.cu src/parallel/cuda/*.cu; do
  # shellcheck disable=SC2086
  $(command -v ccache || true) "$nvcc" -std=c++20 -O2 $flags -Isrc -Iinclude -Xptxas -v -c "$file" -o "$work/$(basename "$file").o" >>"$work/log" 2>&1 || {
    cat "$work/log" >&2
    exit 1
  }
done
status=0
c++filt <"$work/log" | awk '
  /Compiling entry function/ {
    kernel = $0
    sub(/.*namespace\)::/, "", kernel); sub(/\((muster::cuda|void|float).*/, "", kernel); gsub(/muster::cuda::/, "", kernel)
    architecture = $0; sub(/.* for ./, "", architecture); sub(/.$/, "", architecture)
  }
  /bytes stack frame/ { local_bytes = $1; spilled = $5 + $9 }
  /Used [0-9]+ registers/ {
    match($0, /Used [0-9]+/); registers = substr($0, RSTART + 5, RLENGTH - 5) + 0
    printf "%-8s %-40s %4d registers %5d bytes spilled %5d bytes of local memory\n", architecture, kernel, registers, spilled, local_bytes
    kernels++
    if (spilled || local_bytes || registers > 128) bad++
  }
  END {
    if (!kernels) { print "no kernel was compiled"; exit 1 }
    if (bad) { print bad " of " kernels " are over the budget: 128 registers, nothing spilled, no local memory"; exit 1 }
  }' >"$work/table" || status=1
sort "$work/table"
cat "$work"/*.o | wc -c | awk '{ printf "%.1f MiB of object code\n", $1 / 1048576 }'
exit $status
