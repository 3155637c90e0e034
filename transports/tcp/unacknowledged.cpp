#include "transports/tcp/unacknowledged.h"

#include <cstring>
#include <utility>

namespace muster::tcp {
namespace {

// Shorter ones are copied at once: that costs less than coming back to them.
constexpr size_t kCopiedAtOnce = 4096;

std::unique_ptr<std::byte[]> copy_of(const WireOp& op) {
  if (op.header.bytes == 0) return {};
  auto copy = std::make_unique_for_overwrite<std::byte[]>(op.header.bytes);
  std::memcpy(copy.get(), op.payload, op.header.bytes);
  return copy;
}

}  // namespace

bool Unacknowledged::add(WireOp& op, size_t bytes) {
  Message m{end_ += bytes, op.header, nullptr, nullptr};
  if (const bool short_one = op.header.bytes <= kCopiedAtOnce) {
    m.copy = copy_of(op);
    messages_.push_back(std::move(m));
    return short_one;
  }
  m.op = &op;
  ++ops_;
  messages_.push_back(std::move(m));
  return false;
}

void Unacknowledged::forget(size_t n, std::vector<WireOp*>* free) {
  for (size_t i = 0; i < n; ++i)
    if (messages_[i].op) {
      free->push_back(messages_[i].op);
      --ops_;
    }
  messages_.erase(messages_.begin(), messages_.begin() + static_cast<ptrdiff_t>(n));
  acknowledged_ += n;
}

void Unacknowledged::acknowledge(uint64_t bytes, std::vector<WireOp*>* free) {
  size_t n = 0;
  while (n < messages_.size() && messages_[n].end <= bytes) ++n;
  forget(n, free);
}

void Unacknowledged::copy_all(std::vector<WireOp*>* free) {
  for (Message& m : messages_)
    if (m.op) {
      m.copy = copy_of(*m.op);
      free->push_back(std::exchange(m.op, nullptr));
    }
  ops_ = 0;
}

std::vector<Unacknowledged::Message> Unacknowledged::take_behind(uint64_t received, std::vector<WireOp*>* free) {
  forget(static_cast<size_t>(received - acknowledged_), free);
  ops_ = 0;
  return std::exchange(messages_, {});
}

}  // namespace muster::tcp
