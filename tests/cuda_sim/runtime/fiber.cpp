// Fibers: made, switched between, chosen, dropped.
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>

#include "options.h"
#include "scheduler.h"

// Saves the registers that a call keeps, and takes up another stack.
extern "C" void csim_switch(void** save, void* to);
asm(R"(
.text
.globl csim_switch
.hidden csim_switch
.type csim_switch,@function
csim_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size csim_switch,.-csim_switch
)");

namespace cuda_sim {

thread_local Worker* this_worker = nullptr;
extern "C" {
__thread Thread* csim_thread = nullptr;
}

Fiber* Worker::new_fiber() {
  size_t size = scheduler_options().stack;
  auto* f = new Fiber;
  void* stack =
      mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (stack == MAP_FAILED) {
    perror("cuda_sim: stack of a CUDA thread");
    abort();
  }
  f->stack = static_cast<char*>(stack);
  auto** top = reinterpret_cast<void**>(f->stack + size - 56);
  *top = nullptr;  // fiber_main's return address: none; the stack is aligned as after a call
  *--top = reinterpret_cast<void*>(&fiber_main);
  for (int registers = 0; registers < 6; registers++) *--top = nullptr;
  f->stack_pointer = top;
#ifdef CUDA_SIM_RACE_CHECKER
  f->race = __tsan_create_fiber(0);
#endif
  all_fibers.push_back(f);
  return f;
}

void Worker::drop_fibers(Block* of) {
  for (size_t i = 0; i < all_fibers.size();) {
    Fiber* f = all_fibers[i];
    if (!f->thread || f->thread->block != of) {
      i++;
      continue;
    }
#ifdef CUDA_SIM_RACE_CHECKER
    __tsan_destroy_fiber(f->race);
#endif
    munmap(f->stack, scheduler_options().stack);
    delete f;
    all_fibers[i] = all_fibers.back();
    all_fibers.pop_back();
  }
}

void Worker::switch_to(Fiber* to) {
  Fiber* from = fiber;
  csim_thread = to->thread;
  if (to == from) return;
  fiber = to;
#ifdef CUDA_SIM_RACE_CHECKER
  __tsan_switch_to_fiber(to->race, 1);  // 1: orders nothing
#endif
  csim_switch(&from->stack_pointer, to->stack_pointer);
  csim_thread = fiber->thread;  // whoever switched back has set fiber
}

Fiber* Worker::pick() {
  Block* b = block;
  if (!b || b->dead) return nullptr;
  if (b->started < b->count) {
    if (free_fibers.empty()) return new_fiber();
    Fiber* f = free_fibers.back();
    free_fibers.pop_back();
    return f;
  }
  if (b->ready.empty()) return nullptr;
  if (scheduler_options().seed) std::swap(b->ready.at(0), b->ready.at(random() % b->ready.size()));
  return b->ready.pop()->fiber;
}

void Worker::reschedule() {
  if (++slice > slice_end) {  // other blocks may be waiting for a turn
    vain_turns++;
    block = nullptr;
  }
  Fiber* f = pick();
  switch_to(f ? f : &main);
}

int Worker::new_budget() {
  int budget = scheduler_options().budget;
  return scheduler_options().seed ? 1 + static_cast<int>(random() % static_cast<uint32_t>(budget)) : budget;
}

void Worker::progress() {
  block->vain_yields = 0;
  idle_rounds = 0;
}

void fiber_main() {
  for (;;) {
    Worker* w = this_worker;
    Block* b = w->block;
    Fiber* f = w->fiber;
    while (!b->dead && b->started < b->count) {
      Thread* t = &b->threads[b->started++];
      t->fiber = f;
      t->state = Thread::State::kRunnable;
      f->thread = csim_thread = t;
      race_acquire(b->grid);  // all before the launch happens before the kernel
      b->launch().fn(b->launch().params, t);
      b->thread_done(t);
    }
    f->thread = csim_thread = nullptr;
    w->free_fibers.push_back(f);
    w->reschedule();
  }
}

// Every runnable fiber of the block has spun in vain.
static void leave_stalled_block(Worker* w) {
  Block* b = w->block;
  b->vain_yields = 0;
  if (b->grid->fault.load(std::memory_order_relaxed) != Fault::kNone) {
    b->dead = true;
    return;
  }
  // A block that stores, or that computes without polling, is no reason to sleep.
  if (b->events[0] != b->seen[0] || b->events[1] == b->seen[1]) w->idle_rounds = 0;
  b->seen[0] = b->events[0];
  b->seen[1] = b->events[1];
  w->vain_turns++;
  w->block = nullptr;  // reschedule() then goes to the main context
}

extern "C" {
void csim_yield() {
  Thread* t = csim_thread;
  Worker* w = this_worker;
  Block* b = w->block;
  t->budget = w->new_budget();
  b->ready.push(t);
  if (++b->vain_yields > b->ready.size() + (b->started < b->count ? 1 : 0)) leave_stalled_block(w);
  w->reschedule();
}

void csim_nanosleep() {
  csim_thread->events[1]++;
  csim_yield();
}

uint32_t csim_random() { return this_worker->random(); }

CSIM_API int csim_split = static_cast<int>(option("CUDASIM_SPLIT", 0));

// Race checker. A relaxed store after a fence publishes what came before the fence; a fence after relaxed
// loads acquires what those locations have published.
void csim_race_load(const void* address) {
  if (Thread* t = csim_thread) t->polled[t->polls++ % 8] = address;
}
void csim_race_store(void* address) {
  if (Thread* t = csim_thread; t && t->fenced) race_release(address);
}
void csim_race_fence() {
  Thread* t = csim_thread;
  if (!t) return;
  t->fenced = 1;
  for (uint32_t i = 0; i < t->polls && i < 8; i++) race_acquire(const_cast<void*>(t->polled[i]));
}
void csim_race_count(Thread* t, int kind) { t->events[kind]++; }
}

}  // namespace cuda_sim
