#!/bin/sh
# scripts/bundle.sh: builds and packs build/bundle/muster-VERSION-linux-x86_64.tar.gz, which runs without installing anything
# (docs/bundle.md), for GPUs where nvcc is found; then proves it (tests/package/bundle.sh).
set -eu
cd "$(dirname "$0")/.."
scripts/setup.sh bundle || echo "bundle.sh: not all packages are there; what needs them is skipped"
gpu=OFF
if command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; then gpu=static; else echo "== bundle: nvcc was not found: for host memory only"; fi
cmake --preset bundle -DMUSTER_GPU=$gpu >/dev/null
cmake --build build/bundle -- -j "$(nproc)" ${CI:+--quiet}
(cd build/bundle && rm -f muster-*.tar.gz && cpack -G TGZ >cpack.log) || { cat build/bundle/cpack.log; exit 1; }
ls -l build/bundle/muster-*.tar.gz
tests/package/bundle.sh build/bundle/muster-*.tar.gz
