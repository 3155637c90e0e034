// What translated kernels call: the execution core of the simulated GPUs.
//
// A CUDA thread is a fiber. The fibers of a block stay on one OS thread, a worker; there are as many workers
// as CPUs. A worker holds any number of blocks, of any device, and turns from one whose threads all spin in
// vain to the next, so that every resident block makes progress. A fiber gives up its worker at barriers,
// warp collectives, __nanosleep, and when its spin budget is used up, which backward branches, polling loads
// and atomics charge.
#pragma once

#include <cstddef>
#include <cstdint>

#define CSIM_API __attribute__((visibility("default")))

namespace cuda_sim {

struct Dim {
  uint32_t x, y, z;
};
struct Block;
struct Warp;
struct Fiber;

struct Thread {
  Dim tid;
  uint32_t lane;
  uint32_t warp_id;
  int32_t budget;  // of spinning; below zero, the fiber gives up its worker
  Dim bid, bdim, gdim;
  uint32_t dynamic_shared;
  char* shared;      // static, then dynamic shared memory of the block
  char* globals;     // the module's variables on this device
  uint32_t* events;  // the block's counts: [0] flag stores and atomics, [1] polling loads and sleeps
  int device;

  // The scheduler's own.
  enum class State { kNew, kRunnable, kAtBarrier, kAtCollective, kDone };
  State state;
  Block* block;
  Warp* warp;
  Fiber* fiber;
  uint64_t result;         // of a warp collective or a barrier's reduction
  uint32_t predicate;      // second result of a warp collective
  int reduction;           // which of a barrier's reductions it waits for
  uint32_t fenced, polls;  // race checker: a fence was executed; how many polling loads were
  const void* polled[8];   // race checker: the last locations polled
};

using EntryFn = void (*)(const void* params, Thread* t);

struct Launch {
  EntryFn fn = nullptr;
  const void* params = nullptr;
  Dim grid{1, 1, 1}, block{1, 1, 1};
  uint32_t static_shared = 0, dynamic_shared = 0;
  char* globals = nullptr;
  const char* name = "?";
  int device = 0;
  uint32_t resident_threads = 0;  // that the device can hold at a time
};

enum class Fault { kNone, kIllegalAddress, kTrap, kAssert, kDeadlock };

// What a translated kernel's shared object tells of itself: csim_module() returns it.
struct TranslatedKernel {
  const char* name;
  EntryFn fn;
  uint32_t parameter_count;
  const uint32_t *offsets, *sizes;  // of the parameters
  uint32_t parameter_bytes, static_shared;
  int max_threads;
};
struct TranslatedVariable {
  const char* name;
  uint64_t offset, size;
};
struct TranslatedModule {
  const TranslatedKernel* kernels;  // a null name ends them
  const TranslatedVariable* variables;
  uint64_t globals_size;
  void (*init_globals)(char* globals);
};
constexpr uint32_t kSharedWindow = 262144;  // more than a block's shared memory: whether an address is in it

// Runs a grid; returns when it is done. From any OS thread that is no worker.
Fault run_grid(Launch& launch);

// Which reduction a barrier returns.
enum BarrierReduction { kPopulationCount, kAnd, kOr };

enum WarpOp {
  W_SYNC,
  W_SHFL_UP,
  W_SHFL_DOWN,
  W_SHFL_BFLY,
  W_SHFL_IDX,
  W_VOTE_ALL,
  W_VOTE_ANY,
  W_VOTE_UNI,
  W_BALLOT,
  W_MATCH_ANY,
  W_MATCH_ALL,
  W_RED_ADD,
  W_RED_MIN_S,
  W_RED_MAX_S,
  W_RED_MIN_U,
  W_RED_MAX_U,
  W_RED_AND,
  W_RED_OR,
  W_RED_XOR
};

extern "C" {
extern __thread Thread* csim_thread
    __attribute__((tls_model("initial-exec"), visibility("default")));  // running
CSIM_API void csim_yield();  // lets other fibers and OS threads run
CSIM_API void csim_nanosleep();
CSIM_API void csim_barrier_sync(int id, uint32_t threads);  // 0 threads: the whole block
CSIM_API void csim_barrier_arrive(int id, uint32_t threads);
CSIM_API uint32_t csim_barrier_reduce(int id, uint32_t threads, int reduction, uint32_t predicate);
// A warp collective of the lanes in mask; returns its value, and in *predicate (may be null) its second
// result.
CSIM_API uint64_t csim_warp(int op, uint32_t mask, uint64_t value, uint32_t b, uint32_t c,
                            uint32_t* predicate);
[[noreturn]] CSIM_API void csim_trap();
[[noreturn]] CSIM_API void csim_fault();  // as an access to an illegal address
[[noreturn]] CSIM_API void csim_assert_fail(const char* text, const char* file, unsigned line,
                                            const char* function);
CSIM_API uint64_t csim_clock();   // ns
CSIM_API uint32_t csim_random();  // of this worker
CSIM_API void csim_printf(const char* format, const char* arguments);
CSIM_API void csim_check_access(uint64_t address, uint32_t bytes,
                                Thread* t);  // ends the kernel where it is illegal
// Race checker: polling loads, flag stores and fences, which ThreadSanitizer itself doesn't connect.
CSIM_API void csim_race_load(const void* address);
CSIM_API void csim_race_store(void* address);
CSIM_API void csim_race_fence();
CSIM_API void csim_race_count(Thread* t, int kind);
}
}  // namespace cuda_sim
