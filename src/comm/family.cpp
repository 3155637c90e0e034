#include "comm/family.h"

#include <algorithm>
#include <exception>

#include "base/log.h"
#include "comm/call_times.h"
#include "comm/state.h"

namespace muster {
namespace {

using Impl = Communicator::Impl;

// A rank of the first communicator died: what that is to a member of the family.
void tell_of_death(Impl& member, int dead, const std::string& message, uint64_t first) {
  const auto at = std::find(member.family_ranks.begin(), member.family_ranks.end(), dead);
  if (at == member.family_ranks.end()) return;
  const int rank = static_cast<int>(at - member.family_ranks.begin());
  if (member.segment && member.segment->control(rank).left.load(std::memory_order_acquire))
    return;  // it had gone before
  member.set_error(Result::remote_error,
                   member.id == first ? message
                                      : fmt::format("{} ended without leaving communicator {}. Noticed in "
                                                    "the communicator that it was made of: {}",
                                                    member.rank_name(rank), member.name, message),
                   false);
}

}  // namespace

Segment::Room Family::allot(const Segment::Geometry& geometry) {
  if (segment && geometry.nranks > 1) return segment->allot(geometry);
  return {segment ? segment->next_number() : ++lone_children_, 0};
}

void Family::watch(const std::shared_ptr<Family>& self) {
  self->bootstrap_->watch([weak = std::weak_ptr<Family>(self)](const Bootstrap::Trouble& t) {
    if (const auto family = weak.lock()) family->report(t);
  });
}

void Family::report(const Bootstrap::Trouble& t) {
  std::vector<std::shared_ptr<Impl>> concerned;
  {
    const std::lock_guard lock(mutex_);
    if (t.death) dead_.insert(t.rank);
    for (const auto& [id, weak] : members_)
      if (t.death || id == (t.communicator ? t.communicator : id_))
        if (auto member = weak.lock()) concerned.push_back(std::move(member));
  }
  for (const auto& member : concerned) {
    if (t.death)
      tell_of_death(*member, t.rank, t.message, id_);
    else
      member->set_error(t.code, t.message, false);
  }
}

void Family::enter(const std::shared_ptr<Impl>& member) {
  std::set<int> dead;
  {
    const std::lock_guard lock(mutex_);
    members_[member->id] = member;
    dead = dead_;
  }
  if (member->segment) CallTimes::of_process().add(member->segment, member->rank);
  for (const int rank : dead)
    tell_of_death(*member, rank, "it had died before this communicator was complete", id_);
}

void Family::leave(Impl& member) noexcept {
  {
    const std::lock_guard lock(mutex_);
    members_.erase(member.id);
    if (!members_.empty()) return;
  }
  bootstrap_->close();
}

void Family::announce(const Impl& member, Result code, const std::string& message) noexcept {
  try {
    Bootstrap::Trouble t{member.family_ranks[static_cast<size_t>(member.rank)], code, message};
    if (member.id != id_) t.communicator = member.id;
    bootstrap_->announce(t);
  } catch (const std::exception& e) {
    log_warn("communicator {}: the other hosts could not be told of the error: {}", member.name, e.what());
  }
}

}  // namespace muster
