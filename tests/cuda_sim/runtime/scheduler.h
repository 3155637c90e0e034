// The scheduler's inside: fibers, warps, blocks, workers. Nothing here is shared between OS threads but Grid.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <vector>

#include "execution.h"

// The race checker's build of the runtime: these sources themselves are compiled without -fsanitize=thread,
// for the scheduler isn't what is checked; it tells ThreadSanitizer of fibers, and which of a kernel's events
// order which.
#ifdef CUDA_SIM_RACE_CHECKER
extern "C" {
void* __tsan_get_current_fiber(void);
void* __tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void* fiber);
void __tsan_switch_to_fiber(void* fiber, unsigned flags);
void __tsan_acquire(void* address);
void __tsan_release(void* address);
}
inline void race_acquire(void* address) { __tsan_acquire(address); }
inline void race_release(void* address) { __tsan_release(address); }
#else
inline void race_acquire(void*) {}
inline void race_release(void*) {}
#endif

namespace cuda_sim {

struct Fiber {
  void* stack_pointer = nullptr;
  char* stack = nullptr;
  Thread* thread = nullptr;
  void* race = nullptr;  // ThreadSanitizer's
};

struct Collective {  // of a warp, in flight
  uint32_t mask = 0, arrived = 0;
  int op = 0;
  uint64_t value[32];
  uint32_t b[32], c[32];
};

struct Warp {
  uint32_t alive = 0;  // lanes
  std::vector<Collective> collectives;
};

struct Barrier {
  uint32_t expected = 0, arrived = 0;  // 0 expected: the whole block
  std::vector<Thread*> waiting;
  uint32_t count = 0, all = 1, any = 0;
};

// A ring that never allocates while fibers run, on whose small stacks an allocation might not fit.
class RunQueue {
 public:
  void reset(uint32_t capacity) {
    if (ring_.size() < capacity + 1) ring_.resize(capacity + 1);
    head_ = count_ = 0;
  }
  void push(Thread* t) {
    at(count_) = t;
    count_++;
  }
  Thread* pop() {
    Thread* t = ring_[head_];
    if (++head_ == ring_.size()) head_ = 0;
    count_--;
    return t;
  }
  Thread*& at(uint32_t i) {
    i += head_;
    return ring_[i < ring_.size() ? i : i - ring_.size()];
  }
  bool empty() const { return count_ == 0; }
  uint32_t size() const { return count_; }

 private:
  std::vector<Thread*> ring_;
  uint32_t head_ = 0, count_ = 0;
};

struct Grid {
  Launch* launch;
  uint32_t total, started = 0, active = 0, finished = 0;  // blocks; guarded by the pool's mutex
  uint32_t block_threads;
  std::atomic<Fault> fault{Fault::kNone};
  std::condition_variable done;

  void set_fault(Fault why) {
    Fault none = Fault::kNone;
    fault.compare_exchange_strong(none, why);
  }
};

struct Block {
  Grid* grid;
  uint32_t count = 0, started = 0, done = 0;  // threads
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  Barrier barriers[16];
  RunQueue ready;
  uint64_t vain_yields = 0;                       // since the last progress
  uint32_t events[2] = {0, 0}, seen[2] = {0, 0};  // see Thread::events; as of the last stall
  std::vector<char> shared;
  bool dead = false;

  void start(Grid* of, uint32_t index);
  void thread_done(Thread* t);
  void wake(Thread* t) {
    t->state = Thread::State::kRunnable;
    ready.push(t);
  }
  const Launch& launch() const { return *grid->launch; }
};

// An OS thread that runs blocks. It stays with one until all of the block's fibers have spun in vain, or its
// time slice is used up; then it turns to its next. When every block it holds has stalled it takes one more
// of the pending launches, so that every resident block runs, else it gives the CPU away.
struct Worker {
  Fiber main;
  Fiber* fiber = nullptr;  // running
  std::vector<Fiber*> free_fibers, all_fibers;
  Block* block = nullptr;  // whose fibers run now
  std::vector<Block*> blocks, spare;
  size_t turn = 0;
  uint32_t vain_turns = 0;            // in a row that ended in a stall or with the slice used up
  uint32_t slice = 0, slice_end = 0;  // switches in this turn
  uint32_t idle_rounds = 0;
  uint32_t random_state;

  explicit Worker(uint32_t number);
  uint32_t random() {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 17;
    random_state ^= random_state << 5;
    return random_state;
  }
  int new_budget();
  Fiber* new_fiber();
  void drop_fibers(Block* of);  // that are stuck inside a kernel
  void switch_to(Fiber* to);    // returns when somebody switches back
  Fiber* pick();                // what runs next of the block; null: nothing can
  void reschedule();            // leaves the running fiber, which has put itself where it'll be found
  void run_turn();              // the block's fibers, from the main context, until its turn ends
  void progress();              // a thread was woken or has ended
  [[noreturn]] void run();

 private:
  bool admit();           // takes one block of a pending launch
  void retire(size_t i);  // a block that is done or dead
  void idle();
};

extern thread_local Worker* this_worker;

struct SchedulerOptions {
  int budget;        // CUDASIM_BUDGET: polls and back edges until a fiber yields
  size_t stack;      // CUDASIM_STACK_KB
  uint32_t seed;     // CUDASIM_SEED: not 0: fibers and blocks in random order
  uint32_t slice;    // CUDASIM_SLICE: switches until a worker turns to its next block
  int hang_seconds;  // CUDASIM_HANG_SEC: tells of blocks that spin for longer; 0: never
  uint32_t workers;  // CUDASIM_WORKERS
};
const SchedulerOptions& scheduler_options();

[[noreturn]] void fiber_main();
[[noreturn]] void end_block(Fault why);  // from one of its fibers, which is left for good
void report_deadlock(Block& b);
void install_fault_handlers();  // once per worker

}  // namespace cuda_sim
