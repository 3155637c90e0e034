// Blocks: made ready to run; the end of a thread, a block's faults.
#include <signal.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "scheduler.h"

namespace cuda_sim {

void check_barrier(Block& b, int id);             // barriers.cpp
void check_collectives(Block& b, uint32_t warp);  // collectives.cpp

void Block::start(Grid* of, uint32_t index) {
  const Launch& l = *of->launch;
  grid = of;
  count = of->block_threads;
  started = done = 0;
  dead = false;
  ready.reset(count);
  vain_yields = 0;
  events[0] = events[1] = seen[0] = seen[1] = 0;
  warps.resize((count + 31) / 32);
  for (Warp& w : warps) {
    w.alive = 0;
    w.collectives.clear();
    w.collectives.reserve(32);
  }
  for (Barrier& b : barriers) {
    b = Barrier{};
    b.waiting.reserve(count);
  }
  shared.assign(l.static_shared + l.dynamic_shared + 256, static_cast<char>(0xCD));  // a GPU doesn't zero it
  auto aligned = (reinterpret_cast<uintptr_t>(shared.data()) + 127) & ~uintptr_t{127};
  Dim bid{index % l.grid.x, index / l.grid.x % l.grid.y, index / l.grid.x / l.grid.y};
  threads.assign(count, Thread{});
  for (uint32_t i = 0; i < count; i++) {
    Thread& t = threads[i];
    t.tid = {i % l.block.x, i / l.block.x % l.block.y, i / l.block.x / l.block.y};
    t.lane = i % 32;
    t.warp_id = i / 32;
    t.budget = scheduler_options().budget;
    t.bid = bid;
    t.bdim = l.block;
    t.gdim = l.grid;
    t.dynamic_shared = l.dynamic_shared;
    t.shared = reinterpret_cast<char*>(aligned);
    t.globals = l.globals;
    t.events = events;
    t.device = l.device;
    t.block = this;
    t.warp = &warps[i / 32];
    t.warp->alive |= 1u << t.lane;
  }
}

void Block::thread_done(Thread* t) {
  race_release(grid);
  t->state = Thread::State::kDone;
  done++;
  t->warp->alive &= ~(1u << t->lane);
  this_worker->progress();
  check_collectives(*this, t->warp_id);
  for (int id = 0; id < 16; id++) check_barrier(*this, id);
}

// "kernel k, device 0, block (0,0,0), thread (1,0,0)", without an allocation: for a signal handler.
static int describe_thread(char* out, size_t size) {
  const Thread& t = *csim_thread;
  const Launch& l = t.block->launch();
  return snprintf(out, size, "kernel %s, device %d, block (%u,%u,%u), thread (%u,%u,%u)", l.name, l.device,
                  t.bid.x, t.bid.y, t.bid.z, t.tid.x, t.tid.y, t.tid.z);
}

void end_block(Fault why) {
  Worker* w = this_worker;
  w->block = csim_thread->block;
  w->block->grid->set_fault(why);
  w->block->dead = true;
  w->switch_to(&w->main);
  abort();
}

void report_deadlock(Block& b) {
  const Dim& bid = b.threads[0].bid;
  fprintf(stderr, "cuda_sim: deadlock in kernel %s, device %d, block (%u,%u,%u): no thread can run\n",
          b.launch().name, b.launch().device, bid.x, bid.y, bid.z);
  for (int id = 0; id < 16; id++)
    if (const Barrier& x = b.barriers[id]; x.arrived)
      fprintf(stderr, "  barrier %d: %u of %u threads have arrived\n", id, x.arrived,
              x.expected ? x.expected : b.count - b.done);
  for (size_t i = 0; i < b.warps.size(); i++)
    for (const Collective& c : b.warps[i].collectives)
      fprintf(stderr, "  warp %zu: collective %d, mask %08x, arrived %08x, alive %08x\n", i, c.op, c.mask,
              c.arrived, b.warps[i].alive);
  b.grid->set_fault(Fault::kDeadlock);
}

extern "C" {
void csim_trap() {
  char who[400];
  describe_thread(who, sizeof who);
  fprintf(stderr, "cuda_sim: trap in %s\n", who);
  end_block(Fault::kTrap);
}

void csim_fault() { end_block(Fault::kIllegalAddress); }

void csim_assert_fail(const char* text, const char* file, unsigned line, const char* function) {
  char who[400];
  describe_thread(who, sizeof who);
  fprintf(stderr, "%s:%u: %s: %s: assertion `%s' failed\n", file, line, function, who, text);
  end_block(Fault::kAssert);
}

uint64_t csim_clock() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000ull + static_cast<uint64_t>(now.tv_nsec);
}
}

#ifndef CUDA_SIM_RACE_CHECKER  // in whose build the handlers are ThreadSanitizer's
// Segmentation faults: in a kernel they end the block; elsewhere the handlers of before are put back.
static struct sigaction before_segv, before_bus;

static void handle_fault(int signal, siginfo_t* info, void* context) {
  if (csim_thread) {
    char who[400], text[512];
    describe_thread(who, sizeof who);
    int n = snprintf(text, sizeof text, "cuda_sim: illegal address %p in %s\n", info->si_addr, who);
    [[maybe_unused]] ssize_t written = write(2, text, static_cast<size_t>(n));
    auto* registers =
        static_cast<ucontext_t*>(context)->uc_mcontext.gregs;  // the handler returns into csim_fault
    registers[REG_RSP] = ((registers[REG_RSP] - 1024) & ~15ll) - 8;
    registers[REG_RIP] = reinterpret_cast<greg_t>(&csim_fault);
    return;
  }
  sigaction(signal, signal == SIGSEGV ? &before_segv : &before_bus, nullptr);
}
#endif

void install_fault_handlers() {
  auto* stack = static_cast<char*>(malloc(65536));  // the worker's for good
  stack_t alternate{};
  alternate.ss_sp = stack;
  alternate.ss_size = 65536;
  sigaltstack(&alternate, nullptr);
#ifndef CUDA_SIM_RACE_CHECKER
  [[maybe_unused]] static bool once = [] {
    struct sigaction handler {};
    handler.sa_sigaction = handle_fault;
    handler.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigaction(SIGSEGV, &handler, &before_segv);
    sigaction(SIGBUS, &handler, &before_bus);
    return true;
  }();
#endif
}

}  // namespace cuda_sim
