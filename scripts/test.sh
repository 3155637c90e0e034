#!/bin/sh
# scripts/test.sh [STEP...]: installs packages, builds and tests. Steps, `ci` if none is named:
#   ci    Release, warnings are errors; all tests but the long ones
#   asan  address and undefined-behaviour sanitizers; the tests that touch memory most
#   tsan  thread sanitizer; the tests with threads
#   fuzz  each parser of what others say, 20 s of inputs made up by libFuzzer (scripts/fuzz.sh)
#   fuzz_topology  the parsers of topologies, 30 s each
#   arm64 the kernels on NEON, by cross compiler and QEMU (scripts/test_arm64.sh)
#   bundle  the archive of cpack, and that it needs nothing (scripts/bundle.sh)
#   softroce  real libibverbs and RDMA devices in a virtual machine (tests/softroce), on the build of ci
#   long  the long tests, on the build of ci
set -eu
cd "$(dirname "$0")/.."
scripts/setup.sh
jobs=$(nproc)
tests_at_once=$((jobs + 1))  # many wait for a deadline most of the time
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
  ctest --test-dir "build/$preset" --output-on-failure -j "$tests_at_once" "$@" || again "build/$preset"
}

# A few failed tests run a second time, alone. What fails twice fails the step; what fails once is a bug to be found, in
# Muster or the test, but doesn't say that this change is wrong: it is named, with what it said, in the last lines.
again() {
  said=$(failures "$1")
  case $1 in build/ci) ;; *) echo "$said"; exit 8 ;; esac  # what a sanitizer finds once is true
  failed=$(cut -d: -f2- "$1/Testing/Temporary/LastTestsFailed.log")
  if [ -z "$failed" ] || [ "$(echo "$failed" | wc -l)" -gt "$most_unsteady" ]; then echo "$said"; exit 8; fi
  echo "== failed the first time, now alone:" $failed
  ctest --test-dir "$1" --output-on-failure --rerun-failed || { echo "$said"; failures "$1"; exit 8; }
  unsteady="$unsteady$said
"
}
most_unsteady=3
unsteady=""

# What failed tests said, once more behind the summary: of a long log often only the end is kept.
failures() {
  log=$1/Testing/Temporary/LastTest.log
  cut -d: -f2- "$1/Testing/Temporary/LastTestsFailed.log" | head -5 | while read -r name; do
    echo "== $name said, at the end:"
    awk -v name="$name" '$0 ~ "^[0-9]+/[0-9]+ Testing: " { ours = substr($0, index($0, ": ") + 2) == name }
                         ours && !/^(Command|Directory|Output|-----)/ { print substr($0, 1, 400) }' "$log" | grep -v '^ *$' | tail -25
  done
}

alternatives() { echo "$@" | tr ' ' '|'; }

[ $# -gt 0 ] || set -- ci
for step; do
  targets=""
  case $step in asan | tsan) export MUSTER_TEST_LIMIT=240 ;; *) unset MUSTER_TEST_LIMIT ;; esac
  case $step in
    ci)
      scripts/setup.sh ci || echo "== ci: not all launchers are there; what needs them is skipped"
      build_and_test ci -LE 'long|softroce'
      ;;
    long) build_and_test ci -L long ;;
    asan)
      scripts/setup.sh asan
      tests="kernels_test communicator_test executor_test connection_test bootstrap_test support_test perf_data_test uneven_test
             nccl_api_test nccl_objects_test window_test
             topology_detect_test topology_detect_hwloc_test topology_nvml_test topology_verbs_test agreed_cluster_test
             simulator_test rings_test prediction_test host_price_test custom_test program_json_test msccl_test
             wired_network_test tcp_test ucx_test parallel_hosts_test"
      targets=$tests
      # Not the ones that only count: what they do with memory, smaller ones do, too.
      build_and_test asan -LE 'long|package' -R "^($(alternatives $tests))[.]" \
        -E 'AThousandRanks|MoreDataNeverCostsLess|ManyIsRefusedByNumber'
      ;;
    tsan)
      scripts/setup.sh tsan
      targets="communicator_test executor_test connection_test bootstrap_test nonblocking_test nccl_api_test status_test window_test
               wired_network_test tcp_test ucx_test zero_threads_test"
      build_and_test tsan -LE 'long|package' -R "^($(alternatives $targets))[.]"
      ;;
    fuzz) scripts/fuzz.sh ;;
    fuzz_topology) scripts/fuzz.sh 30 $topology_parsers ;;
    arm64) scripts/test_arm64.sh ;;
    bundle) scripts/bundle.sh ;;
    softroce)
      scripts/setup.sh softroce || echo "== softroce: not all of its packages are there; what needs them is skipped"
      targets="softroce_test"
      build_and_test ci -L softroce
      ;;
    *) echo "test.sh: no step '$step': ci, asan, tsan, fuzz, fuzz_topology, arm64, bundle, softroce or long" >&2; exit 2 ;;
  esac
done
if [ -n "$unsteady" ]; then
  echo "$unsteady== UNSTEADY: the tests above passed only the second time"
fi
echo "== all steps passed: $*"
