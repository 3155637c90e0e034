// How the GPU parts of a communicator's ranks find out by which memory each pair of them sends messages.
//
// Three rounds of cards: where mailboxes in GPU memory are, and what the GPUs are; who has written a proof
// into whose; what has arrived, and where the mailboxes in host memory are by which
// the rest goes. A rank alone decides where it is written to, for it alone sees what comes. The rest all
// ranks know alike from then on.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/cuda/gpu_facts.h"
#include "comm/cuda/memory_offer.h"
#include "comm/gpu_rank.h"
#include "exec/cuda/executor.h"
#include "exec/cuda/mailbox.h"

namespace muster::cuda {

class Meeting {
 public:
  // Mailboxes are kept by the household, since peers may reach them as soon as they are told.
  Meeting(const GpuSetting& setting, int device, const MailboxShape& shape, Household& household);
  // This rank's of the next round; equally long on all ranks, in all rounds.
  std::vector<std::byte> next_card();
  // The cards of that round, by rank. Throws where a peer isn't reached by either memory. True: it was the
  // last round.
  bool hear(std::span<const std::byte> cards);
  // When it is over: connections by peer, where those of other hosts have no memory (network_bridge.h); what
  // joins the GPUs, where all ranks are on one host; where they are, if the topology knows them (gpu_places); how many
  // blocks a rank's kernel may have.
  const std::vector<KernelExecutor::Connection>& connections() const { return connections_; }
  const Links& links() const { return links_; }
  const std::vector<RankPlace>& places() const { return places_; }
  int blocks() const { return blocks_; }
  // Then, and the same on all ranks: every rank writes to every other one's GPU itself.
  bool all_reach_all() const { return all_reach_all_; }

 private:
  struct Card;
  size_t peers() const { return setting_.peers.size(); }
  size_t card_bytes() const;
  Card card_of(size_t peer, std::span<const std::byte> cards) const;
  std::vector<uint64_t> bits_of(size_t peer, std::span<const std::byte> cards) const;
  int32_t first_of_host() const;
  void introduce(Card* mine);
  void make_mailbox();
  void reach(size_t peer, const Card& theirs);
  void write_to_peers();
  void look_what_arrived(std::span<const std::byte> cards);
  void complain(size_t peer, bool garbage) const;
  void connect(std::span<const std::byte> cards);

  const GpuSetting& setting_;
  const int device_;
  const MailboxShape shape_;
  Household& household_;
  const size_t bytes_;  // of a mailbox, with the proofs behind it: one of each rank
  int round_ = 0;
  Reached in_gpu_, in_host_;
  std::optional<MemoryOffer> offer_;  // of in_gpu_, until all have mapped it
  uint64_t host_offset_ = 0;
  std::vector<GpuFacts> gpus_;      // by peer
  std::vector<std::string> buses_;  // by peer
  Links links_;
  std::vector<RankPlace> places_;
  int blocks_ = 0;
  std::vector<Reached> theirs_;              // mailboxes in GPU memory; null: not reached
  std::vector<uint64_t> written_, arrived_;  // bits by peer
  std::vector<KernelExecutor::Connection> connections_;
  bool all_reach_all_ = true;
};

}  // namespace muster::cuda
