#!/bin/sh
# scripts/test.sh [STEP...]: installs packages, builds and tests. Steps, `ci` if none is named:
#   ci    Release, warnings are errors; all tests but the long ones
#   asan  address and undefined-behaviour sanitizers; the tests that touch memory most
#   tsan  thread sanitizer; the tests with threads
#   fuzz  each parser of what others say, 20 s of inputs made up by libFuzzer (scripts/fuzz.sh)
#   fuzz_topology  the parsers of topologies, 30 s each
#   arm64 the kernels on NEON, by cross compiler and QEMU (scripts/test_arm64.sh)
#   long  the long tests, on the build of ci
set -eu
cd "$(dirname "$0")/.."
scripts/setup.sh
jobs=$(nproc)
topology_parsers="hwloc_xml nccl_graph nccl_xml smi_matrix topology"  # fuzz targets

# build_and_test PRESET CTEST_ARGUMENT...: builds all targets, or those in $targets.
build_and_test() {
  preset=$1
  shift
  echo "== $preset: building (build/$preset)"
  cmake --preset "$preset" >"/tmp/muster-configure.$$" || { cat "/tmp/muster-configure.$$"; exit 1; }
  sed -n '/Optional parts/,$p' "/tmp/muster-configure.$$" | grep -E '^--  ' || true
  rm -f "/tmp/muster-configure.$$"
  cmake --build "build/$preset" ${targets:+--target $targets} -- -j "$jobs" ${CI:+--quiet}
  echo "== $preset: testing"
  ctest --test-dir "build/$preset" --output-on-failure -j "$jobs" "$@"
}

alternatives() { echo "$@" | tr ' ' '|'; }

[ $# -gt 0 ] || set -- ci
for step; do
  targets=""
  case $step in asan | tsan) export MUSTER_TEST_LIMIT=240 ;; *) unset MUSTER_TEST_LIMIT ;; esac
  case $step in
    ci) build_and_test ci -LE long ;;
    long) build_and_test ci -L long ;;
    asan)
      tests="kernels_test communicator_test executor_test connection_test bootstrap_test support_test perf_data_test uneven_test
             nccl_api_test nccl_objects_test status_test window_test
             topology_detect_test topology_detect_hwloc_test topology_nvml_test topology_verbs_test agreed_cluster_test
             simulator_test rings_test prediction_test host_price_test custom_test program_json_test msccl_test"
      targets=$tests
      build_and_test asan -LE 'long|package' -R "^($(alternatives $tests))[.]"
      ;;
    tsan)
      targets="communicator_test executor_test connection_test bootstrap_test nonblocking_test nccl_api_test status_test window_test"
      build_and_test tsan -LE 'long|package' -R "^($(alternatives $targets))[.]"
      ;;
    fuzz) scripts/fuzz.sh ;;
    fuzz_topology) scripts/fuzz.sh 30 $topology_parsers ;;
    arm64) scripts/test_arm64.sh ;;
    *) echo "test.sh: no step '$step': ci, asan, tsan, fuzz, fuzz_topology, arm64 or long" >&2; exit 2 ;;
  esac
done
echo "== all steps passed: $*"
