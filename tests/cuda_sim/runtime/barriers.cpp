// The barriers of a block.
#include <cstdio>

#include "scheduler.h"

namespace cuda_sim {

void check_barrier(Block& b, int id) {
  Barrier& barrier = b.barriers[id];
  // Threads that have ended count as arrived.
  uint32_t need = barrier.expected ? barrier.expected : b.count - b.done;
  if (!barrier.arrived || barrier.arrived < need) return;
  for (Thread* t : barrier.waiting) {
    t->result = t->reduction == kAnd ? barrier.all : t->reduction == kOr ? barrier.any : barrier.count;
    b.wake(t);
  }
  barrier.waiting.clear();
  barrier.expected = barrier.arrived = barrier.count = barrier.any = 0;
  barrier.all = 1;
  this_worker->progress();
}

static void arrive(int id, uint32_t threads, uint32_t predicate) {
  if (id < 0 || id > 15) {
    fprintf(stderr, "cuda_sim: barrier %d: 0 to 15 are wanted\n", id);
    csim_trap();
  }
  Block& b = *this_worker->block;
  Barrier& barrier = b.barriers[id];
  race_release(&barrier);
  if (threads) {
    if (barrier.arrived && barrier.expected && barrier.expected != threads)
      fprintf(stderr, "cuda_sim: barrier %d of kernel %s is used for %u and for %u threads at once\n", id,
              b.launch().name, barrier.expected, threads);
    barrier.expected = threads;
  }
  barrier.arrived++;
  barrier.count += predicate;
  barrier.all &= predicate;
  barrier.any |= predicate;
}

extern "C" {
uint32_t csim_barrier_reduce(int id, uint32_t threads, int reduction, uint32_t predicate) {
  arrive(id, threads, predicate ? 1 : 0);
  Thread* t = csim_thread;
  Worker* w = this_worker;
  Block& b = *w->block;
  t->state = Thread::State::kAtBarrier;
  t->reduction = reduction;
  b.barriers[id].waiting.push_back(t);
  check_barrier(b, id);
  w->reschedule();
  race_acquire(&b.barriers[id]);
  t->budget = w->new_budget();
  return static_cast<uint32_t>(t->result);
}

void csim_barrier_sync(int id, uint32_t threads) { csim_barrier_reduce(id, threads, kPopulationCount, 0); }

void csim_barrier_arrive(int id, uint32_t threads) {
  arrive(id, threads, 0);
  check_barrier(*this_worker->block, id);
}
}

}  // namespace cuda_sim
