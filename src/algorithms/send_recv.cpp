// A group of point-to-point messages: buffer i is the user memory of message i.
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "algorithms/algorithms.h"
#include "base/error.h"

namespace muster {

namespace {
Loop message_loop(size_t message, const Ref& from, const Ref& to) {
  return {{{{from}, {to}, 0, 1, false}}, static_cast<int32_t>(message)};
}
}  // namespace

Program send_recv(int nranks, int rank, std::span<const Message> messages) {
  if (messages.size() > std::numeric_limits<uint16_t>::max()) {
    fail(Result::invalid_usage,
         "rank {}: a group of {} sends and receives; at most {} can be in one group: split it", rank,
         messages.size(), std::numeric_limits<uint16_t>::max());
  }
  Program p;
  p.coll = Coll::send_recv;
  p.algorithm = "send_recv";
  p.nranks = nranks;
  p.rank = rank;

  std::map<std::pair<int, bool>, Channel>
      channels;  // by peer and direction, so that no message waits for another's peer
  std::vector<size_t> to_self, from_self;
  for (size_t i = 0; i < messages.size(); ++i) {
    const auto [is_send, peer] = messages[i];
    if (peer < 0 || peer >= nranks) {
      fail(Result::invalid_argument, "rank {}: message {} of the group is a {} rank {}; ranks are 0..{}",
           rank, i, is_send ? "send to" : "receive from", peer, nranks - 1);
    }
    if (peer == rank) {
      (is_send ? to_self : from_self).push_back(i);
      continue;
    }
    const Ref memory = local(static_cast<uint16_t>(i), 0);
    channels[{peer, is_send}].loops.push_back(is_send ? message_loop(i, memory, slot(peer))
                                                      : message_loop(i, slot(peer), memory));
  }
  if (to_self.size() != from_self.size()) {
    fail(Result::invalid_usage,
         "rank {}: the group has {} sends to itself and {} receives from itself; each needs its counterpart "
         "in the same group",
         rank, to_self.size(), from_self.size());
  }
  for (auto& [key, channel] : channels) p.channels.push_back(std::move(channel));
  if (!to_self.empty()) {
    Channel self;
    for (size_t k = 0; k < to_self.size(); ++k)
      self.loops.push_back(message_loop(to_self[k], local(static_cast<uint16_t>(to_self[k]), 0),
                                        local(static_cast<uint16_t>(from_self[k]), 0)));
    p.channels.push_back(std::move(self));
  }
  return p;
}

}  // namespace muster
