// Workers, and the launches that wait for them.
#include <sched.h>
#include <time.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <thread>

#include "options.h"
#include "scheduler.h"

namespace cuda_sim {
namespace {

struct Pool {
  std::mutex mutex;
  std::condition_variable work;
  std::deque<Grid*> pending;  // with blocks not yet started
  uint32_t idle = 0, workers = 0;
  uint32_t resident[256] = {};  // threads on each device
};
Pool& pool = *new Pool;  // never destroyed: workers still wait on it when the process ends

}  // namespace

const SchedulerOptions& scheduler_options() {
  static const SchedulerOptions options = {
      .budget = static_cast<int>(std::max(1l, option("CUDASIM_BUDGET", 4096))),
      .stack = static_cast<size_t>(option("CUDASIM_STACK_KB", 64)) * 1024,
      .seed = static_cast<uint32_t>(option("CUDASIM_SEED", 0)),
      .slice = static_cast<uint32_t>(std::max(1l, option("CUDASIM_SLICE", 4096))),
      .hang_seconds = static_cast<int>(option("CUDASIM_HANG_SEC", 0)),
      .workers = static_cast<uint32_t>(
          std::max(1l, option("CUDASIM_WORKERS", static_cast<long>(std::thread::hardware_concurrency()))))};
  return options;
}

Worker::Worker(uint32_t number)
    : random_state(2463534242u ^ (scheduler_options().seed * 2654435761u) ^ (number * 97)) {
  if (!random_state) random_state = 1;
  free_fibers.reserve(4096);
  all_fibers.reserve(4096);
  blocks.reserve(1024);
  fiber = &main;
#ifdef CUDA_SIM_RACE_CHECKER
  main.race = __tsan_get_current_fiber();
#endif
}

bool Worker::admit() {
  std::unique_lock lock(pool.mutex);
  for (size_t i = 0; i < pool.pending.size(); i++) {
    Grid* g = pool.pending[i];
    uint32_t& resident = pool.resident[g->launch->device & 255];
    if (resident && resident + g->block_threads > g->launch->resident_threads)
      continue;  // the device is full, as a GPU may be
    uint32_t index = g->started++;
    g->active++;
    resident += g->block_threads;
    if (g->started == g->total) pool.pending.erase(pool.pending.begin() + static_cast<ptrdiff_t>(i));
    lock.unlock();
    Block* b = spare.empty() ? new Block : spare.back();
    if (!spare.empty()) spare.pop_back();
    b->start(g, index);
    race_release(g);
    blocks.push_back(b);
    turn = blocks.size() - 1;
    vain_turns = idle_rounds = 0;
    return true;
  }
  if (blocks.empty()) {
    pool.idle++;
    pool.work.wait(lock);
    pool.idle--;
  }
  return false;
}

void Worker::retire(size_t i) {
  Block* b = blocks[i];
  Grid* g = b->grid;
  if (!b->dead && b->done < b->count) {
    report_deadlock(*b);
    b->dead = true;
  }
  if (b->dead) drop_fibers(b);
  blocks.erase(blocks.begin() + static_cast<ptrdiff_t>(i));
  spare.push_back(b);
  vain_turns = 0;
  std::lock_guard lock(pool.mutex);
  g->active--;
  g->finished++;
  pool.resident[g->launch->device & 255] -= g->block_threads;
  pool.work.notify_all();
  if (g->finished == g->total) g->done.notify_all();
}

// All blocks of this worker wait for somebody else: it lets him run.
void Worker::idle() {
  vain_turns = 0;
  if (++idle_rounds < 200) {
    sched_yield();
    return;
  }
  timespec pause{0, idle_rounds < 2000 ? 20000 : 200000};
  nanosleep(&pause, nullptr);
  auto hang_seconds = static_cast<uint32_t>(scheduler_options().hang_seconds);
  if (!hang_seconds || idle_rounds < 2000 || (idle_rounds - 2000) / 4000 < hang_seconds) return;
  for (const Block* b : blocks) {
    const Dim& bid = b->threads[0].bid;
    fprintf(stderr,
            "cuda_sim: kernel %s on device %d: block (%u,%u,%u) has spun for about %u s; %u threads spin, %u "
            "of %u are done\n",
            b->launch().name, b->launch().device, bid.x, bid.y, bid.z, hang_seconds, b->ready.size(), b->done,
            b->count);
  }
  idle_rounds = 2000;
}

void Worker::run() {
  const SchedulerOptions& options = scheduler_options();
  this_worker = this;
  install_fault_handlers();
  for (;;) {
    if (blocks.empty() || vain_turns >= blocks.size())
      if (!admit()) {
        if (blocks.empty()) continue;
        idle();
      }
    turn = (options.seed ? random() : turn + 1) % blocks.size();
    size_t i = turn;
    Block* b = blocks[i];
    block = b;
    slice = 0;
    slice_end = options.seed ? 1 + random() % options.slice : options.slice;
    if (!b->dead && b->grid->fault.load() == Fault::kNone) {
      if (Fiber* f = pick()) switch_to(f);
      csim_thread = nullptr;
      race_acquire(b->grid);
    } else {
      b->dead = true;
    }
    // Its turn has ended (block is null then), or it is done, dead, or can't go on.
    if (b->dead || b->done == b->count || (block == b && b->ready.empty() && b->started == b->count))
      retire(i);
    block = nullptr;
  }
}

Fault run_grid(Launch& launch) {
  Grid g;
  g.launch = &launch;
  g.total = launch.grid.x * launch.grid.y * launch.grid.z;
  g.block_threads = launch.block.x * launch.block.y * launch.block.z;
  uint32_t limit = scheduler_options().workers, want = std::min(g.total, limit);
  race_release(&g);
  std::unique_lock lock(pool.mutex);
  pool.pending.push_back(&g);
  for (; pool.workers < limit && pool.idle < want && want; want--) {
    uint32_t number = pool.workers++;
    std::thread([number] { (new Worker(number))->run(); }).detach();
  }
  pool.work.notify_all();
  g.done.wait(lock, [&] { return g.finished == g.total; });
  race_acquire(&g);
  return g.fault.load();
}

}  // namespace cuda_sim
