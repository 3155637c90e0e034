#!/bin/sh
# scripts/setup.sh [STEP...]: installs the Debian 12 packages that building and testing Muster need, and those of the
# steps named; does nothing where all are there.
set -eu
packages="g++ cmake ninja-build ccache pkg-config
  libfmt-dev libssl-dev libhwy-dev libpugixml-dev libhwloc-dev libibverbs-dev libucx-dev libcli11-dev nlohmann-json3-dev
  libgtest-dev libgmock-dev libbenchmark-dev
  binutils iproute2 procps python3 graphviz"
for step; do
  case $step in
    ci) packages="$packages openmpi-bin mpich slurmctld slurmd slurm-client munge" ;;  # launchers: tests are skipped without
    asan | tsan | fuzz) packages="$packages clang libclang-rt-14-dev" ;;
    arm64) packages="$packages g++-aarch64-linux-gnu qemu-user-static" ;;
    bundle) packages="$packages debootstrap" ;;  # to prove it in a bare system
    softroce)
      packages="$packages qemu-system-x86 seabios busybox-static cpio kmod xz-utils
        rdma-core ibverbs-providers ibverbs-utils perftest ucx-utils"
      kernel=linux-image-amd64  # fetched by tests/softroce/softroce-vm, not installed: apt must know it
      ;;
  esac
done

missing=""
for package in $packages; do
  dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing="$missing $package"
done
if [ -n "${kernel:-}" ] && [ -n "$(apt-cache show "$kernel" 2>/dev/null)" ]; then kernel=""; fi
[ -n "$missing${kernel:-}" ] || exit 0

root=""
if [ "$(id -u)" != 0 ]; then
  command -v sudo >/dev/null || { echo "setup.sh: run it as root: apt-get must install$missing" >&2; exit 1; }
  root=sudo
fi
$root apt-get -qq update
[ -n "$missing" ] || exit 0
echo "== installing:$missing"
$root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install $missing >/dev/null
