#include "exec/cuda/messages.h"

#include <algorithm>

#include "base/error.h"
#include "base/math.h"
#include "device/cuda/check.h"

namespace muster::cuda {
namespace {

class MessageSplitter {
 public:
  MessageSplitter(int rank, const MailboxShape& mailbox, uint32_t most_blocks)
      : rank_(rank), mailbox_(mailbox) {
    image_.most_blocks = std::min(most_blocks, kMostMessageBlocks);
  }

  MessageImage split(std::span<const GroupMessage> group) {
    std::vector<const GroupMessage*> to_self, from_self;
    std::vector<std::vector<const GroupMessage*>> sent(static_cast<size_t>(mailbox_.ranks)), received = sent;
    for (const GroupMessage& m : group) {
      if (m.peer < 0 || m.peer >= mailbox_.ranks)
        fail(Result::invalid_argument, "rank {}: a message with rank {}; ranks are 0..{}", rank_, m.peer,
             mailbox_.ranks - 1);
      if (m.peer == rank_)
        (m.is_send ? to_self : from_self).push_back(&m);
      else
        (m.is_send ? sent : received)[static_cast<size_t>(m.peer)].push_back(&m);
    }
    // Each rank begins with another peer, so that not all send to one at once.
    for (int i = 1; i < mailbox_.ranks; ++i) {
      const int to = (rank_ + i) % mailbox_.ranks, from = (rank_ - i + mailbox_.ranks) % mailbox_.ranks;
      for (int lane = 0; lane < mailbox_.message_lanes; ++lane) {
        flow(KernelFlow::sends, to, lane, sent[static_cast<size_t>(to)]);
        flow(KernelFlow::receives, from, lane, received[static_cast<size_t>(from)]);
      }
    }
    copies(to_self, from_self);
    if (image_.flows.size() > size_t{image_.most_blocks} * kMostFlowsOfBlock)
      fail(Result::invalid_usage,
           "rank {}: a group of {} flows to and from peers on GPU memory; {} are the most. Split it", rank_,
           image_.flows.size(), image_.most_blocks * kMostFlowsOfBlock);
    return std::move(image_);
  }

 private:
  struct Part {
    uint64_t begin = 0, bytes = 0;
  };
  // Both ends cut alike. Parts begin at multiples of 128 bytes; the first lane has one of an empty message,
  // too.
  std::vector<Part> parts(uint64_t bytes) const {
    const auto most = static_cast<uint64_t>(std::max(1, mailbox_.message_lanes));
    const uint64_t size =
        align_up(ceil_div(bytes, std::clamp<uint64_t>(bytes / mailbox_.slot_bytes, 1, most)), 128);
    std::vector<Part> all;
    for (uint64_t begin = 0; begin < bytes || all.empty(); begin += size)
      all.push_back({begin, std::min(size, bytes - begin)});
    return all;
  }

  void add(std::byte* from, std::byte* to, const GroupMessage& m, const Part& p) {
    image_.messages.push_back(
        {from ? from + p.begin : nullptr, to ? to + p.begin : nullptr, p.bytes, m.fingerprint});
    image_.longest_move = std::max(image_.longest_move, std::min<uint64_t>(p.bytes, mailbox_.slot_bytes));
  }

  void close(KernelFlow::Kind kind, uint32_t end, size_t first) {
    const size_t last = image_.messages.size();
    if (first != last)
      image_.flows.push_back({kind, end, static_cast<uint32_t>(first), static_cast<uint32_t>(last)});
  }

  void flow(KernelFlow::Kind kind, int peer, int lane, const std::vector<const GroupMessage*>& messages) {
    const size_t first = image_.messages.size();
    const bool sends = kind == KernelFlow::sends;
    for (const GroupMessage* m : messages) {
      const std::vector<Part> all = parts(m->bytes);
      if (static_cast<size_t>(lane) < all.size())
        add(sends ? m->buffer : nullptr, sends ? nullptr : m->buffer, *m, all[static_cast<size_t>(lane)]);
    }
    close(kind, (sends ? sending_end : receiving_end)(mailbox_, peer, mailbox_.lanes + lane), first);
  }

  void copies(const std::vector<const GroupMessage*>& sent,
              const std::vector<const GroupMessage*>& received) {
    bool match = sent.size() == received.size();
    for (size_t i = 0; match && i < sent.size(); ++i) match = sent[i]->bytes == received[i]->bytes;
    if (!match)
      fail(Result::invalid_usage,
           "rank {}: the group's {} sends to itself don't match its {} receives from itself", rank_,
           sent.size(), received.size());
    for (size_t lane = 0; lane < static_cast<size_t>(std::max(1, mailbox_.message_lanes)); ++lane) {
      const size_t first = image_.messages.size();
      for (size_t i = 0; i < sent.size(); ++i)
        if (const std::vector<Part> all = parts(sent[i]->bytes); lane < all.size() && sent[i]->bytes != 0)
          add(sent[i]->buffer, received[i]->buffer, *sent[i], all[lane]);
      close(KernelFlow::copies, 0, first);
    }
  }

  const int rank_;
  const MailboxShape& mailbox_;
  MessageImage image_;
};

}  // namespace

MessageImage image_of(std::span<const GroupMessage> group, int rank, const MailboxShape& mailbox,
                      uint32_t most_blocks) {
  return MessageSplitter(rank, mailbox, most_blocks).split(group);
}

std::vector<uint32_t> MessageImage::ends() const {
  std::vector<uint32_t> all;
  for (const KernelFlow& f : flows)
    if (f.kind != KernelFlow::copies) all.push_back(f.end);
  return all;
}

MessageTables::Table& MessageTables::take(size_t bytes) {
  const LeavesCapturesAlone relaxed;
  for (Table& t : tables_)
    if (!t.captured && t.memory.size() >= bytes && t.read.reached()) return t;
  constexpr size_t kLeastTable = 4096;
  return tables_.emplace_back(device_, std::max(align_up(bytes, kLeastTable), kLeastTable));
}

}  // namespace muster::cuda
