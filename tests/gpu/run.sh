#!/bin/sh
# run.sh [CHECK...]: what can be tested and measured on a machine with a GPU, in less than four minutes, from an unpacked bundle: needs
# a driver, and nothing else. What is found is used: NVIDIA's own libnccl.so.2, compute-sanitizer, Python with PyTorch, nvcc.
# The last lines say PASS, FAIL or SKIP of each check. Status: 0 nothing failed, 1 something did, 77 no GPU.
# SECONDS_LEFT: for all checks, 230 if not set. GPU_CHECK_QUICK=1: few and small, for simulated GPUs. GPU_CHECK: the program to use.
set -u
here=$(cd "$(dirname "$0")" && pwd)
gpu_check=${GPU_CHECK:-$here/gpu_check}
quick=${GPU_CHECK_QUICK:+--quick}
end=$(($(date +%s) + ${SECONDS_LEFT:-230}))
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

result() { # RESULT CHECK REASON
  printf '%-4s %-26s %s\n' "$1" "$2" "$3" | tee -a "$work/summary"
  [ "$1" != FAIL ] || failed=1
}

# check NAME SECONDS COMMAND...: its last line becomes the reason.
check() {
  name=$1 limit=$2
  shift 2
  [ -z "$quick" ] || limit=200  # simulated GPUs compile each kernel at its first launch
  left=$((end - $(date +%s)))
  [ "$left" -gt 3 ] || { result SKIP "$name" "no time was left"; return; }
  [ "$limit" -lt "$left" ] || limit=$left
  timeout -k 2 "$limit" "$@" >"$work/output" 2>&1
  status=$?
  sed 's/^/     /' "$work/output"
  last=$(grep -v '^ *$' "$work/output" | tail -n 1)
  case $status in
    0) result PASS "$name" "$last" ;;
    77) result SKIP "$name" "$last" ;;
    124 | 137) result FAIL "$name" "not over after $limit s" ;;
    *) result FAIL "$name" "status $status: $last" ;;
  esac
}

# NVIDIA's library: beside PyTorch, or where the loader finds it.
nvidia_nccl() {
  for file in $(python3 -c 'import importlib.util as u; print(*u.find_spec("nvidia.nccl").submodule_search_locations)' 2>/dev/null)/lib/libnccl.so.2 \
    $(ldconfig -p 2>/dev/null | sed -n 's/.*libnccl.so.2 .*=> //p') /usr/local/cuda/lib64/libnccl.so.2; do
    [ -e "$file" ] && { echo "$file"; return; }
  done
}

ranks_of() { case $1 in *[0-9]) echo "${1##*[!0-9]}" ;; *) echo 1 ;; esac; }

one() {
  n=$(ranks_of "$1")
  case $1 in
    threads[0-9]) check "$1" 40 "$gpu_check" collectives --ranks "$n" $quick ;;
    processes[0-9]) check "$1" 40 "$gpu_check" collectives --ranks "$n" --processes --quick ;;  # they take turns on the GPU
    gpus)
      if [ "$gpus" = 1 ]; then
        result SKIP "$1" "there is one GPU only"
        return
      fi
      check "$1" 40 "$gpu_check" collectives --ranks "$gpus" --spread $quick
      ;;
    messages[0-9]) check "$1" 20 "$gpu_check" messages --ranks "$n" $quick ;;
    graphs[0-9]) check "$1" 20 "$gpu_check" graphs --ranks "$n" $quick ;;
    abort[0-9]) check "$1" 20 "$gpu_check" abort --ranks "$n" $quick ;;
    bandwidth[0-9]) check "$1" 30 "$gpu_check" bandwidth --ranks "$n" $quick ;;
    latency[0-9]) check "$1" 20 "$gpu_check" latency --ranks "$n" $quick ;;
    nvidia)
      # Several ranks on one GPU it refuses.
      library=$(nvidia_nccl)
      if [ -z "$library" ]; then
        result SKIP "$1" "NVIDIA's libnccl.so.2 was not found"
        return
      fi
      echo "     $library:"
      check nvidia-latency1 20 env LD_PRELOAD="$library" "$gpu_check" latency $quick
      check nvidia-bandwidth1 30 env LD_PRELOAD="$library" "$gpu_check" bandwidth $quick
      ;;
    sanitizer)
      tool=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
      if [ -z "$tool" ]; then
        result SKIP "$1" "compute-sanitizer was not found"
        return
      fi
      check sanitizer-memcheck 60 "$tool" --error-exitcode 9 "$gpu_check" collectives --ranks 1 --quick
      check sanitizer-racecheck 60 "$tool" --tool racecheck --error-exitcode 9 "$gpu_check" collectives --ranks 1 --quick
      ;;
    pytorch)
      if ! python3 -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
        result SKIP "$1" "python3 with PyTorch for GPUs was not found"
        return
      fi
      library=$here/../lib/libnccl.so.2
      check pytorch1 60 env LD_PRELOAD="$library" python3 "$here/pytorch_check.py" 1
      check pytorch2 60 env LD_PRELOAD="$library" python3 "$here/pytorch_check.py" 2
      ;;
    nvcc)
      nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)
      if [ -z "$nvcc" ] || ! command -v g++ >/dev/null; then
        result SKIP "$1" "nvcc with g++ was not found"
        return
      fi
      check nvcc 60 sh -c '"$1" -o "$2/program" -I"$3/../include" -L"$3/../lib" -lnccl -lmuster "$3/../share/muster/examples/one_process_gpu.cu" &&
        LD_LIBRARY_PATH="$3/../lib" "$2/program"' sh "$nvcc" "$work" "$here"
      ;;
    *) echo "run.sh: no check '$1'" >&2; exit 2 ;;
  esac
}

"$gpu_check" info >"$work/info" 2>&1
status=$?
cat "$work/info"
nvidia-smi --query-gpu=name,driver_version,pci.bus_id --format=csv 2>/dev/null
date
[ $status != 77 ] || exit 77
[ $status = 0 ] || { echo "gpu_check can't be run: status $status"; exit 1; }
gpus=$(grep -c '^GPU ' "$work/info")

[ $# -gt 0 ] || set -- threads1 threads2 threads4 threads8 processes2 processes4 processes8 gpus messages1 messages4 graphs1 graphs4 \
  abort2 bandwidth1 bandwidth2 bandwidth8 latency1 latency2 latency8 nvidia sanitizer pytorch nvcc
for each; do one "$each"; done
echo
echo "== $(grep -c '^PASS' "$work/summary") passed, $(grep -c '^FAIL' "$work/summary") failed, $(grep -c '^SKIP' "$work/summary") skipped"
cat "$work/summary"
exit $failed
