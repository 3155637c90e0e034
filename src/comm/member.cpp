#include "comm/member.h"

#include <algorithm>

#include "base/log.h"
#include "base/math.h"
#include "bootstrap/wire.h"
#include "comm/init.h"
#include "comm/mappings.h"
#include "comm/places.h"
#include "comm/plan_options.h"
#include "comm/problem.h"
#include "comm/whereabouts.h"

namespace muster {
namespace {

using Impl = Communicator::Impl;

// What a rank says at first.
struct Wish {
  Seat seat;
  int min_channels = 0, max_channels = 0;
  std::string problem;

  std::string write() const {
    return Writer().i32(seat.color).i32(seat.key).i32(min_channels).i32(max_channels).text(problem).take();
  }
  static Wish read(const std::string& text) {
    Reader r(text);
    Wish w;
    w.seat.color = r.i32();
    w.seat.key = r.i32();
    w.min_channels = r.i32();
    w.max_channels = r.i32();
    w.problem = r.text();
    if (!r.ok() || !r.at_end())
      w.problem =
          problem_of(Error(Result::internal_error, "a rank's wish for a new communicator can't be read"));
    return w;
  }
};

std::string check(const Impl& parent, const Impl* child, Seat seat) {
  return problem_in([&] {
    if (seat.color < Communicator::kNoColor)
      fail(Result::invalid_argument,
           "split on {}: color {} is negative. Colors are 0 or more, and -1 for no communicator",
           parent.rank_name(parent.rank), seat.color);
    PlanInputs ignored;
    ignored.custom = parent.inputs.custom;
    if (child) apply_plan_options(parent.options, child->config, ignored);
  });
}

void require_equal_configs(const Impl& parent, const std::vector<int>& ranks,
                           const std::vector<Wish>& wishes) {
  for (size_t i = 1; i < wishes.size(); ++i)
    if (wishes[i].min_channels != wishes[0].min_channels || wishes[i].max_channels != wishes[0].max_channels)
      fail(Result::invalid_usage,
           "ranks differ in Config: {} has min_channels {} and max_channels {}, {} has {} and {}. They must "
           "be the same on all ranks",
           parent.rank_name(ranks[0]), wishes[0].min_channels, wishes[0].max_channels,
           parent.rank_name(ranks[i]), wishes[i].min_channels, wishes[i].max_channels);
}

// What the first of a child's ranks on each host says: the room there. The first of all gives the child its number.
struct Allotment {
  Segment::Room room;
  std::string problem;

  std::string write() const { return Writer().u64(room.number).u64(room.offset).text(problem).take(); }
  static Allotment read(const std::string& text) {
    Reader r(text);
    Allotment a;
    a.room.number = r.u64();
    a.room.offset = r.u64();
    a.problem = r.text();
    return a;
  }
};

// `members`: ranks of the parent, in the child's order.
void describe_child(const Impl& parent, Impl& child, const std::vector<int>& members) {
  child.size = static_cast<int>(members.size());
  child.rank = static_cast<int>(std::find(members.begin(), members.end(), parent.rank) - members.begin());
  child.family = parent.family;
  child.family_ranks.clear();
  for (const int r : members) child.family_ranks.push_back(parent.family_ranks[static_cast<size_t>(r)]);
  take_options(child, parent.options);
  child.inputs.custom = parent.inputs.custom;
  apply_plan_options(child.options, child.config, child.inputs);
  take_places(child);
  if (child.family->any_tuner) make_room_for_tuner(child.inputs);
  for (size_t i = 0; i < members.size(); ++i) {
    const Impl::Rank& theirs = parent.ranks[static_cast<size_t>(members[i])];
    child.ranks[i].arena = theirs.arena;
    child.ranks[i].arena_base = theirs.arena_base;
  }
}

// The first of its ranks on this rank's host.
int first_here(const Impl& comm) {
  return static_cast<int>(std::ranges::find_if(comm.ranks, [](const Impl::Rank& k) { return k.here; }) - comm.ranks.begin());
}

void join(const Impl& parent, const std::shared_ptr<Impl>& child, uint64_t number, const Segment::Room& room) {
  child->id = hash_combine(child->family->id(), number);
  child->name = child->config.name.empty() ? fmt::format("{}.{}", parent.name, number) : child->config.name;
  if (child->size > 1) {
    const uint64_t key = hash_combine(child->id, static_cast<uint64_t>(first_here(*child)));
    publish_in(*child, segments().get(key, [&] {
      return Segment::map(segment_geometry(*child), *child->family->segment, room);
    }));
    introduce_rank(*child, &parent);
  }
  start_tuner(*child);
  child->family->enter(child);
}

}  // namespace

void make_member(Exchange& exchange, Impl& parent, const std::shared_ptr<Impl>& child, Seat seat) {
  Wish mine{seat};
  mine.problem = check(parent, child.get(), seat);
  if (child) {
    mine.min_channels = child->config.min_channels;
    mine.max_channels = child->config.max_channels;
  }
  std::vector<Wish> wishes;
  std::vector<std::string> problems;
  for (const std::string& text : exchange.all_gather(mine.write())) {
    wishes.push_back(Wish::read(text));
    problems.push_back(wishes.back().problem);
  }
  throw_first(problems);

  std::vector<size_t> order;  // of this child's ranks, indices into exchange.ranks()
  for (size_t i = 0; i < wishes.size(); ++i)
    if (wishes[i].seat.color == seat.color) order.push_back(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return wishes[a].seat.key < wishes[b].seat.key; });
  std::vector<int> members;
  std::vector<Wish> members_wishes;
  for (const size_t i : order) {
    members.push_back(exchange.ranks()[i]);
    members_wishes.push_back(wishes[i]);
  }
  Allotment own;
  bool leads = false;  // this host's ranks
  own.problem = problem_in([&] {
    if (!child) return;
    describe_child(parent, *child, members);
    require_equal_configs(parent, members, members_wishes);
    leads = first_here(*child) == child->rank;
    if (leads) own.room = child->family->allot(child->size > 1 ? segment_geometry(*child) : Segment::Geometry{});
  });
  const std::vector<std::string> rooms = exchange.all_gather(own.write());
  std::string problem;
  problems.clear();
  if (child) {
    std::vector<Allotment> allotted;
    for (const size_t i : order) {
      allotted.push_back(Allotment::read(rooms[i]));
      problems.push_back(allotted.back().problem);
    }
    problem = problem_in([&] {
      throw_first(problems);
      join(parent, child, allotted[0].room.number, allotted[static_cast<size_t>(first_here(*child))].room);
    });
  }
  const std::vector<std::string> ends = exchange.all_gather(problem);
  if (!child) return;
  problems.clear();
  for (const size_t i : order) problems.push_back(ends[i]);
  try {
    throw_first(problems);
  } catch (...) {
    // All have seen that it came to nothing.
    child->family->leave(*child);
    child->tuner.reset();
    child->transport.reset();
    child->own_control = nullptr;
    if (leads && child->segment) child->segment->discard();
    child->segment.reset();
    child->family.reset();
    throw;
  }
  log_info(Topic::init, "communicator {}: rank {} of {}, made of rank {} of communicator {}", child->name,
           child->rank, child->size, parent.rank, parent.name);
}

}  // namespace muster
