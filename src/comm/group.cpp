// Groups: calls of one thread collected until the outermost group_end, then run side by side.
#include <algorithm>
#include <atomic>
#include <exception>
#include <functional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/thread.h"
#include "comm/open_group.h"
#include "comm/state.h"
#include "comm/stream.h"

namespace muster {
namespace {

using Impl = Communicator::Impl;

struct Launch {
  HostStream* stream;  // null: the thread that ends the group
  Batch batch;
};

struct Group {
  int depth = 0;
  std::vector<Launch> launches;  // one per stream
  std::vector<LifeStep> steps;
};

thread_local Group t_group;

Batch::Part& part_of(Batch& batch, const std::shared_ptr<Impl>& comm) {
  for (Batch::Part& p : batch.parts)
    if (p.comm == comm) return p;
  batch.parts.emplace_back();
  batch.parts.back().comm = comm;
  return batch.parts.back();
}

void add(Batch::Part& part, const Call& call) {
  std::vector<Call>& calls = call.shape.coll == Coll::send_recv ? part.messages : part.collectives;
  calls.push_back(call);
  if (call.uneven) calls.back().uneven = part.uneven.emplace_back(std::make_shared<const Uneven>(*call.uneven)).get();
}
void add(Batch::Part& part, const OneSided& call) { part.one_sided.push_back(call); }

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

// What goes wrong in the background is asked for by async_error().
void run_in_background(Batch& batch) noexcept {
  try {
    run_in_turn(batch);
  } catch (const std::exception& e) {
    const auto* error = dynamic_cast<const Error*>(&e);
    for (Batch::Part& p : batch.parts) p.comm->set_error(error ? error->code() : Result::system_error, e.what(), true);
  }
  for (Batch::Part& p : batch.parts) p.comm->end_job();
}

void launch(Launch launch) {
  for (Batch::Part& p : launch.batch.parts) p.ticket = p.comm->take_ticket();
  const auto unblocked = std::find_if(launch.batch.parts.begin(), launch.batch.parts.end(), [](const Batch::Part& p) { return !p.comm->blocking; });
  if (!launch.stream && unblocked == launch.batch.parts.end()) {
    run_in_turn(launch.batch);
    return;
  }
  const std::shared_ptr<Impl> host = unblocked == launch.batch.parts.end() ? nullptr : unblocked->comm;
  // std::function copies; the batch is shared instead.
  auto batch = std::make_shared<Batch>(std::move(launch.batch));
  if (launch.stream) {
    launch.stream->impl().enqueue([batch] { run_in_turn(*batch); });
    return;
  }
  for (Batch::Part& p : batch->parts) p.comm->begin_job();
  try {
    host->background->post([batch] { run_in_background(*batch); });
  } catch (const std::exception& e) {
    for (Batch::Part& p : batch->parts) {
      p.comm->set_error(Result::system_error, e.what(), true);
      p.comm->await_turn(p.ticket);
      p.comm->end_turn(p.ticket);
      p.comm->end_job();
    }
    throw;
  }
}

void skip_turn(const LifeStep& s) {
  if (!s.of) return;
  s.of->await_turn(s.ticket);
  s.of->end_turn(s.ticket);
}

void run_step(const LifeStep& s) {
  try {
    if (s.of) s.of->await_turn(s.ticket);
    s.run();
  } catch (const std::exception& e) {
    if (s.of) s.of->end_turn(s.ticket);
    if (s.made) s.made->give_up(e);
    throw;
  }
  if (s.of) s.of->end_turn(s.ticket);
}

void run_step_in_background(const LifeStep& s) noexcept {
  try {
    run_step(s);
  } catch (const std::exception& e) {
    const auto* error = dynamic_cast<const Error*>(&e);
    if (!s.made) s.of->set_error(error ? error->code() : Result::system_error, e.what(), true);
  }
  if (s.of) s.of->end_job();
  if (s.made) s.made->end_job();
}

void post_step(const LifeStep& s) {
  if (s.of) s.of->begin_job();
  if (s.made) s.made->begin_job();
  try {
    (s.of ? s.of : s.made)->background->post([s] { run_step_in_background(s); });
  } catch (const std::exception& e) {
    if (s.made) s.made->give_up(e);
    skip_turn(s);
    if (s.of) s.of->end_job();
    if (s.made) s.made->end_job();
    throw;
  }
}

bool waits(const LifeStep& s) { return (!s.of || s.of->blocking) && (!s.made || s.made->blocking); }

void launch_steps(std::vector<LifeStep> steps) {
  for (LifeStep& s : steps) {
    if (s.of) s.ticket = s.of->take_ticket();
    if (s.made) s.made->in_group.store(false);
  }
  if (!std::all_of(steps.begin(), steps.end(), waits)) {
    for (const LifeStep& s : steps) post_step(s);
    return;
  }
  if (steps.size() == 1) return run_step(steps[0]);
  std::atomic<size_t> begun{0};
  try {
    run_side_by_side("muster-init", steps.size(), [&](size_t i) {
      ++begun;
      run_step(steps[i]);
    });
  } catch (const std::exception& e) {
    if (begun == 0)  // their threads couldn't be started
      for (const LifeStep& s : steps) {
        if (s.made) s.made->give_up(e);
        skip_turn(s);
      }
    throw;
  }
}

}  // namespace

void abandon_group() noexcept {
  const Group lost = std::exchange(t_group, {});
  for (const LifeStep& s : lost.steps) {
    if (!s.made) continue;
    s.made->in_group.store(false);
    s.made->give_up(Error(Result::invalid_usage, "the group in which this communicator was being made was ended by the error of another call"));
  }
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

// Runs a call, queues it on its stream, or keeps it for the thread's group_end. A Call or a OneSided, valid.
template <class T>
void dispatch(const std::shared_ptr<Impl>& comm, const T& call, HostStream* stream) {
  Group& group = t_group;
  if (group.depth == 0) {
    Launch l{stream, {}};
    add(part_of(l.batch, comm), call);
    launch(std::move(l));
    return;
  }
  require_one_stream(group, *comm, stream);
  for (Launch& l : group.launches)
    if (l.stream == stream) return add(part_of(l.batch, comm), call);
  group.launches.push_back({stream, {}});
  add(part_of(group.launches.back().batch, comm), call);
}

}  // namespace

void submit(const std::shared_ptr<Impl>& comm, const Call& call, HostStream* stream) {
  if (t_group.depth == 0) [[likely]] {
    const bool alone = !stream && call.shape.coll != Coll::send_recv;
    if (alone && comm->blocking && comm->all_served()) [[likely]] {
      comm->require_usable();
      if (!comm->repeats(call.shape)) comm->validate_shape(call);
      comm->validate_buffers(call);
      run_call(*comm, call);
      return;
    }
  }
  check_call([&] {
    comm->require_usable();
    comm->validate(call);
    if (stream) stream->impl().require_own_process();
  });
  dispatch(comm, call, stream);
}

void submit_one_sided(const std::shared_ptr<Impl>& comm, const OneSided& call, HostStream* stream) {
  check_call([&] {
    comm->require_usable();
    validate(*comm, call);
    if (stream) stream->impl().require_own_process();
  });
  dispatch(comm, call, stream);
}

void perform(LifeStep step) {
  if (t_group.depth == 0) {
    std::vector<LifeStep> one;
    one.push_back(std::move(step));
    return launch_steps(std::move(one));
  }
  if (step.made) step.made->in_group.store(true);
  t_group.steps.push_back(std::move(step));
}

bool group_is_open() { return t_group.depth > 0; }

void group_start() { ++t_group.depth; }

void group_end() {
  Group& group = t_group;
  if (group.depth == 0) fail(Result::invalid_usage, "group_end without group_start on this thread");
  if (--group.depth > 0) return;
  Group whole = std::exchange(group, {});
  if (!whole.steps.empty()) launch_steps(std::move(whole.steps));
  // Streams first: they run while this thread runs its own calls.
  for (Launch& l : whole.launches)
    if (l.stream) launch(std::move(l));
  for (Launch& l : whole.launches)
    if (!l.stream && !l.batch.parts.empty()) launch(std::move(l));
}

}  // namespace muster
