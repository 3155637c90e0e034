#include "bootstrap/gather_tree.h"

#include "bootstrap/root.h"
#include "bootstrap/wire.h"

namespace muster {
namespace {

constexpr int kFanOut = 8;          // few steps (3 for 500 ranks), few connections
constexpr size_t kBatch = 1 << 20;  // bytes that are worth a message of their own

}  // namespace

int tree_parent(int rank, int roots, int nranks) {
  const int share = root_of(rank, roots, nranks), head = first_of(share, roots, nranks);
  if (rank != head) return head + (rank - head - 1) / kFanOut;
  return share == 0 ? -1 : first_of(share - 1, roots, nranks);
}

GatherTree::GatherTree(EventLoop& loop, int rank, int roots, int nranks, Events events)
    : loop_(loop), rank_(rank), nranks_(nranks), parent_(tree_parent(rank, roots, nranks)), events_(std::move(events)) {
  std::vector<int> sizes(static_cast<size_t>(nranks), 1);
  for (int r = nranks - 1; r > 0; --r) {  // children come behind their parents
    const int p = tree_parent(r, roots, nranks);
    sizes[static_cast<size_t>(p)] += sizes[static_cast<size_t>(r)];
    if (p == rank) children_.try_emplace(r);
  }
  below_ = sizes[static_cast<size_t>(rank)];
}

GatherTree::Branch* GatherTree::branch(int rank) {
  if (rank == parent_) return &above_;
  const auto child = children_.find(rank);
  return child == children_.end() ? nullptr : &child->second;
}

void GatherTree::connect(int rank, ProcessFd fd) {
  Branch* b = branch(rank);
  if (!b || b->attached) return;
  b->attached = true;
  b->channel = std::make_unique<SecureChannel>(
      loop_, std::move(fd),
      SecureChannel::Events{[this, rank](std::string_view m) { on_message(rank, m); },
                            [this, rank](int error) { on_end(rank, error); }});
  for (const std::string& m : std::exchange(b->waiting, {})) b->channel->send(m);
}

void GatherTree::limit_silence(std::chrono::milliseconds most) {
  if (above_.channel) above_.channel->limit_silence(most);
  for (auto& [rank, child] : children_)
    if (child.channel) child.channel->limit_silence(most);
}

void GatherTree::Branch::send(std::string message) {
  if (channel)
    channel->send(message);
  else if (!attached)
    waiting.push_back(std::move(message));
}

void GatherTree::give(uint32_t sequence, std::string_view text) { collect(sequence, rank_, text); }

void GatherTree::on_message(int from, std::string_view message) {
  const bool final = from == parent_;
  if (final)
    for (auto& [rank, child] : children_) child.send(std::string(message));
  Reader r(message);
  const uint32_t sequence = r.u32();
  while (r.ok() && !r.at_end()) {
    const int origin = r.i32();
    const std::string_view text = r.raw(r.u32());
    if (!r.ok() || origin < 0 || origin >= nranks_) return;
    final ? events_.text(sequence, origin, text) : collect(sequence, origin, text);
  }
}

void GatherTree::collect(uint32_t sequence, int origin, std::string_view text) {
  const bool top = parent_ < 0;
  if (top) events_.text(sequence, origin, text);
  Exchange& x = exchanges_[sequence];
  if (x.batch.empty()) x.batch = Writer().u32(sequence).take();
  x.batch += Writer().i32(origin).text(text).take();
  const bool last = ++x.count == below_;
  if (!last && x.batch.size() < kBatch) return;
  const std::string batch = std::exchange(x.batch, {});
  if (last) exchanges_.erase(sequence);
  if (top)
    for (auto& [rank, child] : children_) child.send(batch);
  else
    above_.send(batch);
}

void GatherTree::on_end(int from, int error) {
  SecureChannel::retire(std::move(branch(from)->channel));
  events_.lost(from, error);
}

void GatherTree::close(bool orderly) {
  const auto end = [&](Branch& b) {
    b.attached = true;  // nothing comes any more
    b.waiting.clear();
    orderly ? SecureChannel::finish(std::move(b.channel)) : SecureChannel::retire(std::move(b.channel));
  };
  end(above_);
  for (auto& [rank, child] : children_) end(child);
}

}  // namespace muster
