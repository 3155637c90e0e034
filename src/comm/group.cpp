// Groups: calls of one thread collected until the outermost group_end, then run side by side.
#include <exception>
#include <functional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/thread.h"
#include "comm/state.h"
#include "comm/stream.h"

namespace muster {
namespace {

using Impl = Communicator::Impl;

struct Launch {
  HostStream* stream;  // null: the thread that ends the group
  Batch batch;
};

struct Init {
  std::shared_ptr<Impl> comm;
  std::function<void()> run;
};

struct Group {
  int depth = 0;
  std::vector<Launch> launches;  // one per stream
  std::vector<Init> inits;
};

thread_local Group t_group;

void add(Batch& batch, const std::shared_ptr<Impl>& comm, const Call& call) {
  Batch::Part* part = nullptr;
  for (Batch::Part& p : batch.parts)
    if (p.comm == comm) part = &p;
  if (!part) {
    batch.parts.emplace_back();
    part = &batch.parts.back();
    part->comm = comm;
  }
  std::vector<Call>& calls = call.shape.coll == Coll::send_recv ? part->messages : part->collectives;
  calls.push_back(call);
  if (call.uneven) calls.back().uneven = part->uneven.emplace_back(std::make_shared<const Uneven>(*call.uneven)).get();
}

// Calls of one communicator run in the order in which they were made, on whatever streams.
void run_in_turn(Batch& batch) {
  for (Batch::Part& p : batch.parts) p.comm->await_turn(p.ticket);
  const auto end = [&] {
    for (Batch::Part& p : batch.parts) p.comm->end_turn(p.ticket);
  };
  try {
    run_batch(batch);
  } catch (...) {
    end();
    throw;
  }
  end();
}

void launch(Launch launch) {
  for (Batch::Part& p : launch.batch.parts) p.ticket = p.comm->take_ticket();
  if (!launch.stream) {
    run_in_turn(launch.batch);
    return;
  }
  // std::function copies; the batch is shared instead.
  auto batch = std::make_shared<Batch>(std::move(launch.batch));
  launch.stream->impl().enqueue([batch] { run_in_turn(*batch); });
}

void run_inits(const std::vector<Init>& inits) {
  if (inits.empty()) return;
  try {
    run_side_by_side("muster-init", inits.size(), [&](size_t i) {
      try {
        inits[i].run();
      } catch (const std::exception& e) {
        inits[i].comm->give_up(e);
        throw;
      }
    });
  } catch (const std::exception& e) {
    for (const Init& i : inits)
      if (!i.comm->ready.load()) i.comm->give_up(e);  // their threads couldn't be started
    throw;
  }
}

}  // namespace

void abandon_group() noexcept {
  const Group lost = std::exchange(t_group, {});
  for (const Init& i : lost.inits)
    i.comm->give_up(Error(Result::invalid_usage, "the group in which this communicator was being made was ended by the error of another call"));
}

std::vector<Batch> take_group() {
  std::vector<Batch> batches;
  for (Launch& l : t_group.launches) batches.push_back(std::move(l.batch));
  abandon_group();
  return batches;
}

namespace {

// A group is launched stream by stream, which would change the order of a communicator's calls, and tear messages apart
// that must run together.
void require_one_stream(const Group& group, const Impl& comm, const HostStream* stream) {
  for (const Launch& l : group.launches)
    for (const Batch::Part& p : l.batch.parts)
      if (l.stream != stream && p.comm.get() == &comm) {
        abandon_group();
        fail(Result::invalid_usage, "communicator {}: its calls in one group are on different streams. Put them on one", comm.name);
      }
}

}  // namespace

void submit(const std::shared_ptr<Impl>& comm, const Call& call, HostStream* stream) {
  Group& group = t_group;
  if (group.depth == 0) [[likely]] {
    const bool alone = !stream && call.shape.coll != Coll::send_recv;
    if (alone && comm->all_served()) [[likely]] {
      comm->require_usable();
      if (!comm->repeats(call.shape)) comm->validate_shape(call);
      comm->validate_buffers(call);
      run_call(*comm, call);
      return;
    }
  }
  try {
    comm->require_usable();
    comm->validate(call);
    if (stream) stream->impl().require_own_process();
  } catch (...) {
    abandon_group();
    throw;
  }
  if (group.depth == 0) {
    Launch l{stream, {}};
    add(l.batch, comm, call);
    launch(std::move(l));
    return;
  }
  require_one_stream(group, *comm, stream);
  for (Launch& l : group.launches)
    if (l.stream == stream) return add(l.batch, comm, call);
  group.launches.push_back({stream, {}});
  add(group.launches.back().batch, comm, call);
}

bool defer_init_in_group(const std::shared_ptr<Impl>& comm, std::function<void()> init) {
  if (t_group.depth == 0) return false;
  t_group.inits.push_back({comm, std::move(init)});
  return true;
}

void group_start() { ++t_group.depth; }

void group_end() {
  Group& group = t_group;
  if (group.depth == 0) fail(Result::invalid_usage, "group_end without group_start on this thread");
  if (--group.depth > 0) return;
  Group whole = std::exchange(group, {});
  run_inits(whole.inits);
  // Streams first: they run while this thread runs its own calls.
  for (Launch& l : whole.launches)
    if (l.stream) launch(std::move(l));
  for (Launch& l : whole.launches)
    if (!l.stream && !l.batch.parts.empty()) launch(std::move(l));
}

}  // namespace muster
