#!/bin/sh
# scripts/test_arm64.sh [TEST...]: builds the library and the tests named (kernels_test and wire_test) for 64-bit Arm by
# Debian's cross compiler, and runs them by QEMU: so the kernels are tested with NEON, and the rest at least compiles.
# QEMU on x86 doesn't show Arm's weaker order of memory accesses.
set -eu
cd "$(dirname "$0")/.."
scripts/setup.sh arm64
[ $# -gt 0 ] || set -- kernels_test wire_test

# Debian's packages for arm64, unpacked beside the build: the machine's own package system stays as it is.
libraries=build/arm64-libraries
if [ ! -e $libraries/complete ]; then
  echo "== arm64: fetching libraries ($libraries)"
  rm -rf $libraries
  mkdir -p $libraries/apt/lists/partial $libraries/apt/archives/partial
  at=$(pwd)/$libraries/apt
  apt_get() {
    apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User= -o Dir::State::status=/dev/null \
      -o Dir::State::Lists="$at/lists" -o Dir::Cache="$at" "$@"
  }
  apt_get update
  (cd $libraries/apt && apt_get download libfmt9 libfmt-dev libhwy1 libhwy-dev libssl3 libssl-dev libpugixml1v5 libpugixml-dev libgtest-dev libgmock-dev libcli11-dev)
  for package in $libraries/apt/*.deb; do dpkg -x "$package" $libraries; done
  rm -rf $libraries/apt
  touch $libraries/complete
fi

echo "== arm64: building (build/arm64)"
cmake --preset arm64 >/dev/null
cmake --build build/arm64 --target "$@" -- -j "$(nproc)" ${CI:+--quiet}
echo "== arm64: testing"
MUSTER_TEST_LIMIT=240 ctest --test-dir build/arm64 --output-on-failure -j "$(nproc)" -LE 'long|package' -R "^($(echo "$@" | tr ' ' '|'))[.]"
