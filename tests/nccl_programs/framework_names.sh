#!/bin/sh
# framework_names.sh LIBNCCL_SO
# Every name that frameworks look up, or were linked with, is there: a single one that is missing keeps libtorch_cuda.so, or
# vLLM's ctypes wrapper, from loading. The lists are those of the frameworks' sources: torch/csrc/cuda/nccl.cpp and
# torch/csrc/distributed/c10d of PyTorch, xla/tsl/cuda/nccl.symbols of XLA (JAX, TensorFlow; most pncclX, too), pynccl_wrapper.py of
# vLLM, cupy_backends/cuda/libs/nccl.pyx of CuPy, horovod/common/ops/nccl_operations.cc of Horovod.
set -eu
shown=$(nm -D --defined-only "$1" | awk '{print $3}')
status=0
need() {
  who=$1
  shift
  for name; do
    echo "$shown" | grep -qx "nccl$name" || { echo "$who needs nccl$name"; status=1; }
    echo "$shown" | grep -qx "pnccl$name" || { echo "profilers need pnccl$name"; status=1; }
  done
}
life="GetUniqueId GetVersion GetErrorString GetLastError CommInitRank CommInitRankConfig CommInitRankScalable CommInitAll CommSplit CommShrink
      CommFinalize CommDestroy CommAbort CommGetAsyncError CommCount CommUserRank CommCuDevice GroupStart GroupEnd"
basic="AllReduce Reduce Broadcast Bcast AllGather ReduceScatter Send Recv"
need PyTorch $life $basic AlltoAll Gather CommRegister CommDeregister CommWindowRegister CommWindowDeregister MemAlloc MemFree \
  RedOpCreatePreMulSum RedOpDestroy CommSuspend CommResume CommMemStats CommRevoke CommGetUniqueId CommGrow GroupSimulateEnd \
  WinGetUserPtr PutSignal Signal WaitSignal GetPeerDevicePointer GetLsaMultimemDevicePointer \
  AllReduceConfig AllGatherConfig ReduceScatterConfig BroadcastConfig AlltoAllConfig
need XLA $life $basic AlltoAll AllGatherConfig AllReduceConfig AlltoAllConfig BroadcastConfig ReduceScatterConfig CommRegister CommDeregister \
  CommQueryProperties CommWindowRegister CommWindowDeregister DevCommCreate DevCommDestroy GetLsaDevicePointer \
  GetLsaMultimemDevicePointer GetPeerDevicePointer GroupSimulateEnd MemAlloc MemFree PutSignal Signal WaitSignal RedOpCreatePreMulSum \
  RedOpDestroy ResetDebugInit
need vLLM GetErrorString GetVersion GetUniqueId CommInitRank AllReduce Reduce AllGather ReduceScatter Send Recv Broadcast CommDestroy CommAbort \
  GroupStart GroupEnd CommWindowRegister CommWindowDeregister
need CuPy $basic CommAbort CommCount CommCuDevice CommDestroy CommGetAsyncError CommInitAll CommInitRank CommInitRankConfig CommSplit \
  CommUserRank GetErrorString GetUniqueId GetVersion GroupStart GroupEnd
need Horovod $basic CommAbort CommDestroy CommGetAsyncError CommInitRank GetErrorString GetUniqueId GroupStart GroupEnd
exit $status
