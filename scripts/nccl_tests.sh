#!/bin/bash
# scripts/nccl_tests.sh SOURCE BUILD [OPTIONS...]: NVIDIA's nccl-tests, unmodified, on our libnccl.so.2 and simulated GPUs. SOURCE: a folder
# with them, or an address for git clone (https://github.com/NVIDIA/nccl-tests.git). BUILD: a build tree with its tests built.
# OPTIONS: of each program. If none is given: GPUs of one thread, of threads, and of processes under the mpirun of each MPI that is
# installed for development (Open MPI, MPICH), in graphs, with registered buffers, all types and operations, all roots.
# The last lines are a table of programs and runs. Status: 0 if none failed, 77 if nothing can be run.
# PROGRAMS: of which programs, e.g. "all_reduce sendrecv". LIMIT: seconds for each run of a program, 300 if not set.
set -eu
[ $# -ge 2 ] || { sed -n '2,/^set/s/^# //p' "$0" >&2; exit 2; }
skip() { echo "SKIP nccl-tests: $1"; exit 77; }
[ -n "$1" ] || skip "no folder with nccl-tests is known; configure with -DMUSTER_NCCL_TESTS=FOLDER"
source=$1 build=$(cd "$2" && pwd)
shift 2
nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null) || skip "nvcc was not found"
simulator=$build/tests/cuda_sim/plain
[ -e "$simulator/libcuda.so.1" ] || skip "$simulator has no simulated CUDA runtime"
library=$build/tests/cuda_sim/library
[ -e "$library/libnccl.so.2" ] || skip "$library has no libnccl.so.2"
toolkit=$(dirname "$(dirname "$nvcc")")
programs=${PROGRAMS:-all_reduce all_gather reduce_scatter broadcast reduce alltoall alltoallv gather scatter sendrecv hypercube}

work=$build/nccl-tests
mkdir -p "$work/mpi"
if [ -d "$source" ]; then
  [ -d "$work/source" ] || cp -r "$source" "$work/source"
elif [ ! -d "$work/source" ]; then
  git clone -q --depth 1 "$source" "$work/source" || skip "$source can't be had"
fi

# compile FOLDER [VARIABLE=VALUE...]. With the toolkit's nccl.h, since its nccl_device.h declares what ours does, too.
compile() {
  local folder=$work/$1
  shift
  mkdir -p "$folder"
  if [ "$folder" != "$work/one" ] && [ ! -d "$folder/verifiable" ]; then cp -a "$work/one/verifiable" "$folder/"; fi  # the same without MPI
  make -s -C "$work/source/src" -j "$(nproc)" build BUILDDIR="$folder" CUDA_HOME="$toolkit" CUDARTLIB=cudart NCCL_HOME=/nonexistent \
    NVCC_GENCODE="-gencode=arch=compute_90,code=compute_90" LIBRARY_PATH="$library" "$@" >"$folder/make.log" 2>&1 ||
    { tail -n 20 "$folder/make.log"; exit 1; }
}

# For each MPI a folder as nccl-tests' Makefile wants it: include/ and lib/libmpi.so.
mpis=
for mpi in openmpi mpich; do
  wrapper=$(command -v "mpicc.$mpi") && launcher=$(command -v "mpirun.$mpi") || { echo "no runs with $mpi: mpicc.$mpi and mpirun.$mpi were not found"; continue; }
  flags=$("$wrapper" -show)
  home=$work/mpi/$mpi
  mkdir -p "$home/lib"
  ln -sfn "$(grep -o -- '-I[^ ]*' <<<"$flags" | head -n 1 | cut -c 3-)" "$home/include"
  name=$(grep -o -- '-lmpi[a-z]*' <<<"$flags" | head -n 1 | cut -c 3-)
  for folder in $(grep -o -- '-L[^ ]*' <<<"$flags" | cut -c 3-) /usr/lib; do
    if [ -e "$folder/lib$name.so" ]; then ln -sfn "$folder/lib$name.so" "$home/lib/libmpi.so"; break; fi
  done
  mpis="$mpis $mpi"
done

export LD_LIBRARY_PATH=$simulator:$library CUDASIM_DEVICES=${CUDASIM_DEVICES:-8}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
failed=0 runs=0
declare -A results

# run WHAT FOLDER LAUNCHER OPTION...: all programs.
run() {
  local what=$1 folder=$2 launcher=$3 name log
  shift 3
  runs=$((runs + 1))
  names[runs]=$what
  lines[runs]="$launcher PROGRAM_perf $*"
  echo "== $runs, $what: ${lines[runs]}"
  for name in $programs; do
    log=$work/$name.$runs.log
    if [ "$name" = hypercube ] && [[ $what == *"(several)"* ]]; then
      results[$name,$runs]=not
      continue
    fi
    # shellcheck disable=SC2086
    if timeout -k 5 "${LIMIT:-300}" $launcher "$work/$folder/${name}_perf" "$@" >"$log" 2>&1 </dev/null && grep -q 'Out of bounds values : 0 OK' "$log"; then
      results[$name,$runs]=ok
      echo "PASS $name"
    else
      results[$name,$runs]=FAIL
      echo "FAIL $name: $(grep -i -E 'error|failed|warn|out of bounds' "$log" | tail -n 1)"
      failed=1
    fi
  done
}

compile one
small="-b 8 -e 64K -f 32 -n 2 -w 1"
one="-b 1K -e 1K -n 1 -w 0"
if [ $# -gt 0 ]; then
  run "as given" one "" "$@"
else
  # "(several)": a thread that drives some of more than two ranks.
  run "a thread" one "" $small -g 2
  run "a thread, 4 GPUs (several)" one "" $small -g 4
  run "threads" one "" $small -t 4
  run "threads of 2 GPUs (several)" one "" $small -t 2 -g 2
  run "graph" one "" $small -g 2 -G 2
  run "graphs of threads" one "" $small -t 4 -G 2
  run "registered" one "" $small -g 2 -R 1
  run "windows" one "" $small -t 2 -R 2
  run "all types, operations" one "" $one -g 2 -d all -o all
  run "all roots" one "" $one -t 3 -r -1
  for mpi in $mpis; do
    compile "$mpi" MPI=1 MPI_HOME="$work/mpi/$mpi"
    launcher="$(command -v "mpirun.$mpi")"
    run "$mpi" "$mpi" "$launcher -np 4" $small
    run "$mpi, 2 GPUs each (several)" "$mpi" "$launcher -np 2" $small -g 2
    run "$mpi, graphs" "$mpi" "$launcher -np 2" $small -G 2
    run "$mpi, registered" "$mpi" "$launcher -np 2" $small -R 1
    run "$mpi, all types, operations" "$mpi" "$launcher -np 2" $one -d all -o all
  done
fi

printf '\n%-14s' ""
for i in $(seq $runs); do printf '%5s' "$i"; done
for name in $programs; do
  printf '\n%-14s' "$name"
  for i in $(seq $runs); do printf '%5s' "${results[$name,$i]}"; done
done
printf '\n\n'
for i in $(seq $runs); do printf '%3s %-28s %s\n' "$i" "${names[i]}" "${lines[i]}"; done
if [[ " ${results[*]} " == *" not "* ]]; then
  echo "not: a thread that drives several ranks puts all of hypercube's exchanges into one group, in which each sends on what another receives."
  echo "     Calls of a group go on independently of each other, so the numbers are wrong, with NCCL's own library, too (nccl-tests, issues 190, 356)."
fi
exit $failed
