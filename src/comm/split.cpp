// Communicators made of others: split, shrink, grow.
#include <algorithm>

#include "base/error.h"
#include "bootstrap/wire.h"
#include "comm/init.h"
#include "comm/member.h"
#include "comm/problem.h"

namespace muster {
namespace {

using Impl = Communicator::Impl;

Deadline deadline_for_making(const Impl& comm) {
  return Deadline::after(comm.options.seconds("MUSTER_INIT_TIMEOUT"));
}

// `config`: the child's; without one it is like the parent, but not named like it.
std::shared_ptr<Impl> begin_child(const Impl& parent, const std::optional<Config>& config) {
  Config whole = config.value_or(parent.config);
  if (!config) whole.name.clear();
  auto child = std::make_shared<Impl>(is_blocking(parent.options, whole));
  child->config = std::move(whole);
  return child;
}

void split_by_survivors(Impl& parent, LifeCall step, const std::vector<int>& excluded, bool watches_errors,
                        const std::shared_ptr<Impl>& child, Seat seat) {
  const Deadline deadline = child ? deadline_for_making(parent).or_when(child->cancelled) : deadline_for_making(parent);
  SurvivorExchange exchange(parent, step, excluded, watches_errors, deadline);
  make_member(exchange, parent, child, seat);
  exchange.finish();
}

void split_all(Impl& parent, const std::shared_ptr<Impl>& child, Seat seat) {
  try {
    CollectiveExchange exchange(parent, LifeCall::split, deadline_for_making(parent));
    make_member(exchange, parent, child, seat);
    return;
  } catch (const Error&) {
    if (!parent.revoked()) throw;
  }
  split_by_survivors(parent, LifeCall::split, {}, false, child,
                     seat);  // its ranks have parted: some had more calls than others
}

std::vector<int> check_excluded(const Impl& parent, std::span<const int> excluded) {
  std::vector<int> sorted(excluded.begin(), excluded.end());
  std::sort(sorted.begin(), sorted.end());
  for (size_t i = 0; i < sorted.size(); ++i) {
    const int r = sorted[i];
    if (r < 0 || r >= parent.size)
      fail(Result::invalid_argument, "shrink on rank {}: excluded rank {} is not in 0..{}", parent.rank, r,
           parent.size - 1);
    if (i > 0 && sorted[i - 1] == r)
      fail(Result::invalid_argument, "shrink on rank {}: rank {} is excluded twice", parent.rank, r);
    if (r == parent.rank)
      fail(Result::invalid_argument,
           "shrink on rank {}: it excludes itself. Excluded ranks don't call shrink", r);
  }
  return sorted;
}

// Of all ranks the one id that somebody made.
UniqueId agree_on_growth(Impl& parent, int nranks, const std::optional<UniqueId>& own) {
  CollectiveExchange exchange(parent, LifeCall::grow, deadline_for_making(parent));
  Writer w;
  w.i32(nranks).text(own ? std::string_view(own->internal, sizeof own->internal) : std::string_view());
  std::optional<UniqueId> id;
  int maker = -1;
  const std::vector<std::string> texts = exchange.all_gather(w.take());
  std::vector<int> sizes;
  for (int r = 0; r < parent.size; ++r) {
    Reader reader(texts[static_cast<size_t>(r)]);
    sizes.push_back(reader.i32());
    const std::string theirs = reader.text();
    if (theirs.size() != sizeof(UniqueId)) continue;
    if (id)
      fail(Result::invalid_usage,
           "grow of communicator {}: {} and {} both made an id with grow_id. One rank makes it", parent.name,
           parent.rank_name(maker), parent.rank_name(r));
    maker = r;
    std::copy(theirs.begin(), theirs.end(), id.emplace().internal);
  }
  for (int r = 0; r < parent.size; ++r) {
    if (sizes[static_cast<size_t>(r)] != sizes[0])
      fail(Result::invalid_usage,
           "grow of communicator {}: {} asks for {} ranks, {} for {}. All must give the same number",
           parent.name, parent.rank_name(0), sizes[0], parent.rank_name(r), sizes[static_cast<size_t>(r)]);
    if (sizes[static_cast<size_t>(r)] <= parent.size)
      fail(Result::invalid_argument, "grow of communicator {} from {} to {} ranks: there must be more",
           parent.name, parent.size, sizes[static_cast<size_t>(r)]);
  }
  if (!id)
    fail(
        Result::invalid_usage,
        "grow of communicator {}: no rank made an id. One calls grow_id, and gives it to the ranks that join",
        parent.name);
  return *id;
}

}  // namespace

Communicator Communicator::split(int color, int key, const std::optional<Config>& config) {
  const std::shared_ptr<Impl>& parent = require(impl_);
  check_call([&] {
    parent->require_alive();
    if (parent->failed() && !parent->revoked()) parent->throw_error();
  });
  Communicator c;
  if (color != kNoColor) c.impl_ = begin_child(*parent, config);
  perform({.of = parent, .made = c.impl_, .run = [parent, child = c.impl_, color, key] {
             parent->require_alive();
             split_all(*parent, child, {color, key});
             if (child) child->complete();
           }});
  return c;
}

Communicator Communicator::shrink(std::span<const int> excluded, ShrinkMode mode,
                                  const std::optional<Config>& config) {
  const std::shared_ptr<Impl>& parent = require(impl_);
  std::vector<int> list;
  check_call([&] {
    parent->require_alive();
    if (mode != ShrinkMode::finish && mode != ShrinkMode::abort)
      fail(Result::invalid_argument, "shrink on rank {}: mode {} is neither finish (0) nor abort (1)",
           parent->rank, static_cast<int>(mode));
    list = check_excluded(*parent, excluded);
    if (mode == ShrinkMode::finish && parent->failed() && !parent->revoked()) parent->throw_error();
  });
  const bool aborts = mode == ShrinkMode::abort;
  if (aborts && !parent->failed())
    parent->set_error(Result::remote_error,
                      fmt::format("communicator {}: its calls were ended by {}, which shrinks it",
                                  parent->name, parent->rank_name(parent->rank)),
                      true);
  Communicator c;
  c.impl_ = begin_child(*parent, config);
  perform({.of = parent, .made = c.impl_, .run = [parent, child = c.impl_, list = std::move(list), aborts] {
             parent->require_alive();
             split_by_survivors(*parent, LifeCall::shrink, list, !aborts, child, {0, parent->rank});
             child->complete();
           }});
  return c;
}

UniqueId Communicator::grow_id() {
  const std::shared_ptr<Impl>& impl = require(impl_);
  impl->require_usable();
  if (impl->grow_id)
    fail(Result::invalid_usage, "communicator {}: {} made an id with grow_id before, and no grow has used it",
         impl->name, impl->rank_name(impl->rank));
  impl->grow_id = make_unique_id();
  return *impl->grow_id;
}

Communicator Communicator::grow(int nranks, const std::optional<Config>& config) {
  const std::shared_ptr<Impl>& parent = require(impl_);
  check_call([&] { parent->require_usable(); });
  Communicator c;
  c.impl_ = begin_child(*parent, config);
  c.impl_->rank = parent->rank;
  c.impl_->size = nranks;
  c.impl_->numbered = true;
  take_options(*c.impl_, parent->options);
  perform({.of = parent,
           .made = c.impl_,
           .run = [parent, made = c.impl_, own = std::exchange(parent->grow_id, std::nullopt)] {
             parent->require_usable();
             meet_in(made, agree_on_growth(*parent, made->size, own));
           }});
  return c;
}

Communicator Communicator::join(int nranks, int rank, const UniqueId& id, const Config& config) {
  return init(nranks, rank, id, config);
}

}  // namespace muster
