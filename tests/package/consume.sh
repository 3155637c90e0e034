#!/bin/sh
# consume.sh BUILD_FOLDER SOURCE_OF_CONSUMER VERSION [COMPILE_FLAG...]
# Installs the build into a new folder, moves that elsewhere, and builds and runs the consumer against it: once by
# find_package, once by pkg-config. COMPILE_FLAGs: what the build was made with (sanitizers). The environment's CXX and
# CMAKE_GENERATOR are used.
set -eu
build=$1 consumer=$2 version=$3
shift 3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r "$consumer" "$work/consumer"
cmake --install "$build" --prefix "$work/first" >"$work/install.log"
mv "$work/first" "$work/prefix"
prefix=$work/prefix
pc=$(dirname "$(find "$prefix" -name muster.pc)")
unset LD_LIBRARY_PATH

echo "== find_package"
cmake -S "$work/consumer" -B "$work/build" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_CXX_FLAGS="$*" >"$work/configure.log" ||
  { cat "$work/configure.log"; exit 1; }
cmake --build "$work/build" >"$work/build.log" 2>&1 || { cat "$work/build.log"; exit 1; }
"$work/build/consumer"
"$work/build/c_consumer"
if grep -E 'fmt|hwy|crypto|ssl|pugixml|hwloc' "$prefix"/lib*/cmake/Muster/*.cmake "$prefix"/lib*/*/cmake/Muster/*.cmake 2>/dev/null; then
  echo "the CMake package names what only the library itself needs"
  exit 1
fi

echo "== pkg-config"
export PKG_CONFIG_PATH="$pc"
test "$(pkg-config --modversion muster)" = "$version"
libs=$(pkg-config --libs muster)
case $libs in *fmt* | *hwy* | *crypto* | *pugixml* | *hwloc*) echo "pkg-config gives $libs"; exit 1 ;; esac
${CXX:-c++} -std=c++20 "$@" $(pkg-config --cflags muster) "$work/consumer/consumer.cpp" $libs -pthread \
  -Wl,-rpath,"$(pkg-config --variable=libdir muster)" -o "$work/by_pkg_config"
"$work/by_pkg_config"
case $(pkg-config --modversion nccl) in 2.*) ;; *) echo "nccl.pc has no version of NCCL's"; exit 1 ;; esac
${CC:-cc} -std=c11 "$@" $(pkg-config --cflags nccl) "$work/consumer/consumer.c" $(pkg-config --libs nccl) $libs \
  -Wl,-rpath,"$(pkg-config --variable=libdir nccl)" -o "$work/c_by_pkg_config"
"$work/c_by_pkg_config"
test "$(readlink "$(pkg-config --variable=libdir nccl)/libnccl.so")" = libnccl.so.2

echo "== installed programs"
test "$("$prefix/bin/muster" version)" = "$version"
for perf in "$prefix"/bin/*_perf; do
  [ -e "$perf" ] || continue
  "$perf" -h >"$work/usage"
  grep -q 'Usage:' "$work/usage"
done
