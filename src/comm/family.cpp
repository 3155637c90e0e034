#include "comm/family.h"

#include <algorithm>

#include <fmt/format.h>

#include "bootstrap/process_fd.h"
#include "bootstrap/service.h"
#include "bootstrap/wire.h"
#include "comm/call_times.h"
#include "comm/state.h"
#include "comm/told.h"

namespace muster {
namespace {

using Impl = Communicator::Impl;

// On the helper thread. What is held may be the last of it; it ends when that is done which ends with it, such as the bell.
std::shared_ptr<Family> held(const std::weak_ptr<Family>& weak) {
  auto family = weak.lock();
  if (family) Service::get().loop().post([family] {});
  return family;
}

// A rank of the first communicator died: what that is to a member of the family.
void tell_of_death(Impl& member, int dead, const std::string& message, uint64_t first) {
  const auto at = std::find(member.family_ranks.begin(), member.family_ranks.end(), dead);
  if (at == member.family_ranks.end()) return;
  const int rank = static_cast<int>(at - member.family_ranks.begin());
  if (member.shown && member.control(rank).left.load(std::memory_order_acquire)) return;  // it had gone before
  member.set_error(Result::remote_error,
                   member.id == first ? message
                                      : fmt::format("{} ended without leaving communicator {}. Noticed in "
                                                    "the communicator that it was made of: {}",
                                                    member.rank_name(rank), member.name, message),
                   false);
}

}  // namespace

// The network asks the bootstrap for secrets, and the bell uses the network.
Family::~Family() {
  if (is_forked_child()) {  // their locks and threads stayed in the parent: they can't be taken apart here
    (void)bell_.release();
    (void)network.release();
    return;
  }
  bell_.reset();
  network.reset();
}

Segment::Room Family::allot(const Segment::Geometry& geometry) {
  Segment::Room room;
  if (segment && geometry.nranks > 0)
    room = segment->allot(geometry);
  else
    room.number = segment ? segment->next_number() : ++lone_children_;
  // Hosts count each by themselves, in numbers of their own.
  uint64_t number_of_hosts = 1;
  for (const Profile& p : profiles) number_of_hosts = std::max<uint64_t>(number_of_hosts, static_cast<uint64_t>(p.memory) + 1);
  const Profile& mine = profiles[static_cast<size_t>(bootstrap_->rank())];
  room.number = (room.number - 1) * number_of_hosts + static_cast<uint64_t>(mine.memory) + 1;
  return room;
}

void Family::watch(const std::shared_ptr<Family>& self) {
  const std::weak_ptr<Family> weak(self);
  if (self->network)
    self->bell_ = std::make_unique<NetworkBell>(
        *self->network,
        [weak] {
          if (const auto family = held(weak)) family->ring_members();
        },
        [weak] {
          const auto family = held(weak);
          return family && family->take_in();
        });
  self->bootstrap_->watch(
      [weak](const Bootstrap::Trouble& t) {
        if (const auto family = weak.lock()) family->report(t);
      },
      [weak](int origin, std::string_view text) {
        if (const auto family = weak.lock()) family->hear(origin, text);
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
  if (member->shown) CallTimes::of_process().add(member->segment, member->shown->place(member->rank));
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

void Family::tell(uint64_t member, std::string_view text) { bootstrap_->tell(Writer().u64(member).raw(text).take()); }

void Family::hear(int origin, std::string_view text) {
  Reader r(text);
  const uint64_t id = r.u64();
  std::shared_ptr<Impl> member;
  {
    const std::lock_guard lock(mutex_);
    if (const auto at = members_.find(id); at != members_.end()) member = at->second.lock();
  }
  if (!member || !r.ok()) return;
  const auto at = std::ranges::find(member->family_ranks, origin);
  if (at == member->family_ranks.end()) return;
  muster::hear(*member, static_cast<int>(at - member->family_ranks.begin()), text.substr(sizeof id));
}

// The last holder of one may go meanwhile: it must end without the lock.
std::vector<std::shared_ptr<Impl>> Family::living_members() {
  std::vector<std::shared_ptr<Impl>> all;
  const std::lock_guard lock(mutex_);
  for (const auto& [id, weak] : members_)
    if (auto member = weak.lock()) all.push_back(std::move(member));
  return all;
}

void Family::ring_members() {
  for (const auto& member : living_members())
    if (member->shown) member->control(member->rank).doorbell.ring();
}

bool Family::take_in() {
  bool moved = false;
  for (const auto& member : living_members())
    if (member->made() && member->puts()) moved |= member->puts()->take_in();
  return moved;
}

bool Family::is_dead(int family_rank) {
  const std::lock_guard lock(mutex_);
  return dead_.contains(family_rank);
}

}  // namespace muster
