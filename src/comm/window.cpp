#include "comm/window.h"

#include "base/error.h"
#include "base/lasting_memory.h"
#include "bootstrap/wire.h"
#include "comm/collective_run.h"
#include "comm/exchange.h"
#include "comm/gpu_window_meeting.h"
#include "comm/problem.h"

namespace muster {
namespace {

using Impl = Communicator::Impl;

// What a rank says of its part.
struct Part {
  uint64_t at = 0;  // in its arena; or the address, when all ranks share an address space
  uint64_t bytes = 0;
  bool reachable = true;
  std::string on_gpu;  // describe_gpu_part()
  std::string problem;

  std::string write() const { return Writer().u64(at).u64(bytes).u8(reachable).text(on_gpu).text(problem).take(); }
  static Part read(const std::string& text) {
    Reader r(text);
    Part p;
    p.at = r.u64();
    p.bytes = r.u64();
    p.reachable = r.u8() != 0;
    p.on_gpu = r.text();
    p.problem = r.text();
    if (!r.ok() || !r.at_end())
      p.problem = problem_of(Error(Result::internal_error, "a rank's part of a window can't be read"));
    return p;
  }
};

uint64_t find_in_arena(const Impl& comm, const Window::Impl& window) {
  if (!comm.inputs.windows)
    fail(Result::invalid_usage,
         "register_window on communicator {}: its ranks are processes that don't map each other's memory. At "
         "most {} ranks do, with MUSTER_WINDOWS=1 and a "
         "limit on address space (ulimit -v) that allows it",
         comm.name, kMostDirect);
  const auto at = Arena::of_process().offset_of(window.base, window.bytes);
  if (!at)
    fail(Result::invalid_usage,
         "register_window on communicator {}: the {} bytes from {} on of {} are not in one allocation of "
         "mem_alloc (ncclMemAlloc), so other processes can't "
         "reach them. Allocate them with it",
         comm.name, window.bytes, window.base, comm.rank_name(comm.rank));
  return *at;
}

Part describe(Impl& comm, Window::Impl& window) {
  Part mine;
  mine.bytes = window.bytes;
  mine.problem = problem_in([&] {
    if (window.bytes == 0) return;
    mine.on_gpu = describe_gpu_part(comm, window);
    if (!mine.on_gpu.empty()) {
      mine.reachable = false;
      return;
    }
    if (comm.shown && comm.shown->spans_hosts()) {  // ranks of one host reach what they can
      const auto at = comm.ranks[static_cast<size_t>(comm.rank)].arena_base ? Arena::of_process().offset_of(window.base, window.bytes) : std::nullopt;
      mine.at = at.value_or(0);
      mine.reachable = at.has_value();
      return;
    }
    mine.at =
        comm.inputs.same_process ? reinterpret_cast<uint64_t>(window.base) : find_in_arena(comm, window);
  });
  return mine;
}

void meet_on_gpus(Impl& comm, Window::Impl& window, Exchange& exchange, std::span<const Part> parts) {
  std::vector<std::string> on_gpu;
  std::vector<uint64_t> sizes;
  bool any = false;
  for (const Part& p : parts) {
    on_gpu.push_back(p.on_gpu);
    sizes.push_back(p.bytes);
    any = any || !p.on_gpu.empty();
  }
  if (any) window.on_gpus = meet_in_gpu_window(comm, window, exchange, on_gpu, sizes);
}

void register_now(Impl& comm, Window::Impl& window) {
  comm.require_usable();
  const Deadline deadline = comm.timeout.count() > 0 ? Deadline::after(comm.timeout) : Deadline::never();
  std::vector<Part> parts;
  std::vector<std::string> problems;
  CollectiveExchange exchange(comm, LifeCall::register_window, deadline);
  for (const std::string& text : exchange.all_gather(describe(comm, window).write())) {
    parts.push_back(Part::read(text));
    problems.push_back(parts.back().problem);
  }
  throw_first(problems);
  meet_on_gpus(comm, window, exchange, parts);
  for (size_t r = 0; r < parts.size(); ++r) {
    const bool reachable = parts[r].reachable && (comm.inputs.same_process || comm.ranks[r].here);
    std::byte* const on_gpu = window.on_gpus ? window.on_gpus->parts[r].get() : nullptr;
    window.ranges.push_back({reachable ? comm.address_here(r, parts[r].at) : on_gpu, parts[r].bytes});
  }
  if (window.bytes) window.life = LastingMemory::of_process().add({static_cast<const std::byte*>(window.base), window.bytes}, false, &comm);
  const bool mine_on_gpu = !parts[static_cast<size_t>(comm.rank)].on_gpu.empty();
  if (comm.puts()) window.number = comm.puts()->add_window(static_cast<std::byte*>(window.base), mine_on_gpu ? 0 : window.bytes);
  window.registered.store(true, std::memory_order_release);
}

const Window::Impl::Range& range_of(const Window& window, int rank) {
  if (!window)
    fail(Result::invalid_argument, "a window that isn't registered was asked for rank {}'s part", rank);
  const Window::Impl& impl = *window.impl();
  if (rank < 0 || rank >= impl.comm->size)
    fail(Result::invalid_argument, "rank {} is not in 0..{}", rank, impl.comm->size - 1);
  return impl.ranges[static_cast<size_t>(rank)];
}

}  // namespace

// After an error the others may be writing here, and this rank has no way to know; they stop at once.
Window::Impl::~Impl() {
  if (comm->fork_generation != fork_generation()) return;
  LastingMemory::of_process().end(life);
  if (registered.load() && comm->puts()) comm->puts()->remove_window(number);
  if (registered.load() && comm->segment && comm->failed() && comm->fork_generation == fork_generation())
    await_others_leaving(*comm);
}

Window::operator bool() const { return impl_ && impl_->registered.load(std::memory_order_acquire); }
void* Window::data() const { return impl_ ? impl_->base : nullptr; }
size_t Window::size() const { return impl_ ? impl_->bytes : 0; }
size_t Window::size(int rank) const { return range_of(*this, rank).bytes; }
void* Window::data(int rank) const { return range_of(*this, rank).base; }

Window Communicator::register_window(void* base, size_t bytes, bool symmetric) {
  const std::shared_ptr<Impl>& comm = require(impl_);
  check_call([&] {
    comm->require_usable();
    if (bytes && !base)
      fail(Result::invalid_argument, "register_window on rank {}: {} bytes, but the address is null",
           comm->rank, bytes);
    if (bytes > kAddressSpace ||
        reinterpret_cast<uintptr_t>(base) + bytes < reinterpret_cast<uintptr_t>(base))
      fail(Result::invalid_argument,
           "register_window on rank {}: {} bytes from {} on reach beyond the end of the address space",
           comm->rank, bytes, base);
  });
  Window w;
  w.impl_ = std::make_shared<Window::Impl>();
  w.impl_->comm = comm;
  w.impl_->base = base;
  w.impl_->bytes = bytes;
  w.impl_->symmetric = symmetric;
  perform({.of = comm, .made = nullptr, .run = [comm, window = w.impl_] { register_now(*comm, *window); }});
  return w;
}

}  // namespace muster
