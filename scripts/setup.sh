#!/bin/sh
# scripts/setup.sh [STEP...]: installs the Debian 12 packages that building and testing Muster need, and those of the
# steps named; does nothing where all are there.
set -eu
packages="g++ cmake ninja-build ccache pkg-config
  libfmt-dev libssl-dev libhwy-dev libpugixml-dev libhwloc-dev libibverbs-dev libcli11-dev nlohmann-json3-dev
  libgtest-dev libgmock-dev libbenchmark-dev
  binutils iproute2 procps python3 graphviz"
for step; do
  case $step in
    fuzz) packages="$packages clang libclang-rt-14-dev" ;;
    arm64) packages="$packages g++-aarch64-linux-gnu qemu-user-static" ;;
  esac
done

missing=""
for package in $packages; do
  dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

root=""
if [ "$(id -u)" != 0 ]; then
  command -v sudo >/dev/null || { echo "setup.sh: run it as root: apt-get must install$missing" >&2; exit 1; }
  root=sudo
fi
echo "== installing:$missing"
$root apt-get -qq update
$root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install $missing >/dev/null
