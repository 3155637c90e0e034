#include "comm/cuda/meeting.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "base/math.h"
#include "comm/cuda/allocations.h"
#include "comm/gpu_links.h"
#include "exec/cuda/peer_proof.h"

namespace muster::cuda {
namespace {

constexpr size_t kBits = 64;

bool bit(std::span<const uint64_t> bits, size_t i) { return (bits[i / kBits] >> i % kBits & 1) != 0; }
void set_bit(std::vector<uint64_t>& bits, size_t i) { bits[i / kBits] |= uint64_t{1} << i % kBits; }

// The first time in this process that this is said of two GPUs.
bool is_news(const std::string& from, const std::string& to) {
  static std::mutex mutex;
  static auto* const said = new std::set<std::pair<std::string, std::string>>;
  const std::lock_guard lock(mutex);
  return said->emplace(from, to).second;
}

}  // namespace

// Behind it are bits by peer, those that its round is about.
struct Meeting::Card {
  uint64_t gpu_mailbox;   // round 0: its address
  uint64_t host_mailbox;  // round 2: its offset in the Arena of its process, plus 1; 0: there is none
  SharedPiece memory;     // round 0; of kind none: other processes can't reach it
  GpuFacts gpu;           // round 0
};

Meeting::Meeting(const GpuSetting& setting, int device, const MailboxShape& shape, Household& household)
    : setting_(setting),
      device_(device),
      shape_(shape),
      household_(household),
      bytes_(shape.bytes() + setting.peers.size() * kProofBytes),
      buses_(peers()),
      theirs_(peers()),
      written_(ceil_div(peers(), kBits)),
      arrived_(written_.size()),
      connections_(peers()) {}

size_t Meeting::card_bytes() const { return sizeof(Card) + written_.size() * sizeof(uint64_t); }

std::vector<std::byte> Meeting::next_card() {
  std::vector<std::byte> bytes(card_bytes());
  Card mine{};
  if (round_ == 0) introduce(&mine);
  if (in_host_) mine.host_mailbox = host_offset_ + 1;
  std::memcpy(bytes.data(), &mine, sizeof mine);
  const std::vector<uint64_t>& bits = round_ == 1 ? written_ : arrived_;
  std::memcpy(bytes.data() + sizeof mine, bits.data(), bits.size() * sizeof(uint64_t));
  return bytes;
}

void Meeting::make_mailbox() {
  std::string refusal = refusal_of_virtual_memory(device_);
  if (refusal.empty()) try {
      in_gpu_ = make_gpu_mailbox(device_, bytes_, true);
      return;
    } catch (const Error& e) {
      refusal = e.what();
    }
  log_info(Topic::p2p, "communicator {}, rank {}: its mailbox is memory of cudaMalloc: {}", setting_.name, setting_.rank, refusal);
  in_gpu_ = make_gpu_mailbox(device_, bytes_, false);
}

// The same for all ranks of a host.
int32_t Meeting::first_of_host() const {
  const auto first = std::ranges::find_if(setting_.peers, &GpuPeer::shares_memory);
  return static_cast<int32_t>(first - setting_.peers.begin());
}

void Meeting::introduce(Card* mine) {
  make_mailbox();
  household_.keep(in_gpu_);
  mine->gpu_mailbox = reinterpret_cast<uint64_t>(in_gpu_.get());
  mine->gpu = facts_of(device_);
  mine->gpu.host = first_of_host();
  if (std::ranges::none_of(setting_.peers,
                           [](const GpuPeer& p) { return p.shares_memory && !p.same_process; }))
    return;
  try {
    offer_.emplace(in_gpu_.get(), bytes_);
    mine->memory = offer_->pieces().front();  // a mailbox is one allocation, from its beginning on
    log_info(Topic::p2p, "communicator {}, rank {}: other processes reach its mailbox by {}", setting_.name, setting_.rank,
             name_of(mine->memory.kind));
  } catch (const Error& e) {
    log_info(Topic::p2p, "communicator {}, rank {}: other processes can't reach its GPU's memory: {}",
             setting_.name, setting_.rank, e.what());
  }
}

Meeting::Card Meeting::card_of(size_t peer, std::span<const std::byte> cards) const {
  Card theirs;
  std::memcpy(&theirs, cards.data() + peer * card_bytes(), sizeof theirs);
  theirs.gpu.bus[sizeof theirs.gpu.bus - 1] = 0;
  return theirs;
}

std::vector<uint64_t> Meeting::bits_of(size_t peer, std::span<const std::byte> cards) const {
  std::vector<uint64_t> bits(written_.size());
  std::memcpy(bits.data(), cards.data() + peer * card_bytes() + sizeof(Card), bits.size() * sizeof(uint64_t));
  return bits;
}

bool Meeting::hear(std::span<const std::byte> cards) {
  switch (round_++) {
    case 0:
      for (size_t p = 0; p < peers(); ++p) {
        gpus_.push_back(card_of(p, cards).gpu);
        buses_[p] = gpus_.back().bus;
      }
      blocks_ = blocks_of_rank(gpus_, setting_.name);
      for (size_t p = 0; p < peers(); ++p)
        if (setting_.peers[p].shares_memory) reach(p, card_of(p, cards));
      write_to_peers();
      return false;
    case 1:
      offer_.reset();  // who has sent this card has mapped what it can
      look_what_arrived(cards);
      return false;
    default:
      connect(cards);
      return true;
  }
}

void Meeting::reach(size_t peer, const Card& theirs) {
  if (peer == static_cast<size_t>(setting_.rank)) {
    theirs_[peer] = in_gpu_;
    return;
  }
  const std::string own_bus = bus_id(device_);
  std::string refusal = setting_.p2p_refusal(own_bus, buses_[peer]);
  const bool same_process = setting_.peers[peer].same_process;
  try {
    const int device = device_at(buses_[peer]);
    if (refusal.empty() && device >= 0 && !enable_peer_access(device_, device))
      refusal = "the driver gives no peer access; nvidia-smi topo -p2p rw says why";
    if (refusal.empty() && !same_process && theirs.memory.kind == SharedPiece::Kind::none)
      refusal = "its memory can't be shared with other processes";
    if (refusal.empty()) {
      if (same_process) {
        theirs_[peer] = reached().find(theirs.gpu_mailbox);
        if (!theirs_[peer])
          fail(Result::remote_error, "{} has left communicator {} before its first call on GPU memory",
               setting_.peers[peer].name, setting_.name);
      } else {
        theirs_[peer] = reach_memory(device_, {&theirs.memory, 1}, 0, setting_.peers[peer].name);
      }
      return;
    }
  } catch (const Error& e) {
    if (e.code() == Result::remote_error) throw;
    refusal = e.what();
  }
  log_info(
      Topic::p2p,
      "communicator {}: rank {} on the GPU at {} sends to rank {} on the GPU at {} by way of host memory: {}",
      setting_.name, setting_.rank, own_bus, peer, buses_[peer], refusal);
}

void Meeting::write_to_peers() {
  std::vector<ProofTarget> targets;
  for (size_t p = 0; p < peers(); ++p) {
    if (!theirs_[p]) continue;
    set_bit(written_, p);
    const auto own = static_cast<size_t>(setting_.rank);
    targets.push_back({reinterpret_cast<uint64_t*>(theirs_[p].get() + shape_.bytes() + own * kProofBytes),
                       proof_seed(setting_.communicator, setting_.rank, static_cast<int>(p))});
  }
  write_proofs(device_, targets);
}

void Meeting::look_what_arrived(std::span<const std::byte> cards) {
  std::vector<uint64_t> proofs(peers() * kProofWords);
  read_memory(device_, in_gpu_.get() + shape_.bytes(), proofs.data(), proofs.size() * sizeof(uint64_t));
  bool all = true;
  for (size_t p = 0; p < peers(); ++p) {
    const std::vector<uint64_t> written = bits_of(p, cards);
    const Arrived found = compare_proof(
        &proofs[p * kProofWords], proof_seed(setting_.communicator, static_cast<int>(p), setting_.rank));
    const bool came = bit(written, static_cast<size_t>(setting_.rank));
    if (came && found == Arrived::all)
      set_bit(arrived_, p);
    else if (came)
      complain(p, found == Arrived::garbage);
    all = all && (bit(arrived_, p) || !setting_.peers[p].shares_memory);
  }
  if (all) return;
  in_host_ = make_host_mailbox(device_, bytes_, &host_offset_);
  household_.keep(in_host_);
}

void Meeting::complain(size_t peer, bool garbage) const {
  const std::string& own_bus = buses_[static_cast<size_t>(setting_.rank)];
  if (!is_news(buses_[peer], own_bus)) return;
  log_warn(
      "communicator {}: the driver says that the GPU at {} reaches the memory of the GPU at {}, but {} of "
      "what rank {} wrote there arrived at rank {}. "
      "Messages between them go through host memory, which is slower. PCI access control (ACS) or an IOMMU "
      "between the GPUs does this: "
      "turn ACS off on the bridges above them (setpci, or in the firmware), or boot with iommu=pt. "
      "NCCL_P2P_DISABLE=1 spares the attempt",
      setting_.name, buses_[peer], own_bus, garbage ? "other bytes" : "nothing", peer, setting_.rank);
}

void Meeting::connect(std::span<const std::byte> cards) {
  bool detours = false;
  for (size_t p = 0; p < peers(); ++p) {
    if (!setting_.peers[p].shares_memory) continue;
    const Card theirs = card_of(p, cards);
    const std::vector<uint64_t> arrived = bits_of(p, cards);
    for (size_t from = 0; from < peers(); ++from) {
      detours = detours || !bit(arrived, from);
      all_reach_all_ = all_reach_all_ && bit(arrived, from);
    }
    KernelExecutor::Connection& c = connections_[p];
    c.here = bit(arrived_, p) ? in_gpu_ : in_host_;
    if (bit(arrived, static_cast<size_t>(setting_.rank))) {
      c.there = std::move(theirs_[p]);
      continue;
    }
    const GpuPeer& peer = setting_.peers[p];
    if (!peer.arena)
      fail(Result::invalid_usage,
           "communicator {}: rank {} can't write to the memory of {}'s GPU, and they have no host memory in "
           "common by which messages "
           "could go. Unset MUSTER_WINDOWS=0, or see in the log (NCCL_DEBUG=INFO) why there is none",
           setting_.name, setting_.rank, peer.name);
    const uint64_t offset = theirs.host_mailbox - 1;
    c.there = peer.same_process ? reached().find(reinterpret_cast<uint64_t>(peer.arena.get() + offset))
                                : reach_host_mailbox(device_, peer.arena, offset, bytes_);
    if (!c.there)
      fail(Result::remote_error, "{} has left communicator {} before its first call on GPU memory", peer.name,
           setting_.name);
  }
  theirs_.clear();
  const bool one_host = std::ranges::all_of(setting_.peers, &GpuPeer::shares_memory);
  const Links known = one_host ? links_between(*setting_.cluster, setting_.host_of, buses_) : far_links(static_cast<int>(peers()));
  links_ = links_of_gpus(known, gpus_, detours);
  places_ = gpu_places(*setting_.cluster, setting_.host_of, buses_);
}

}  // namespace muster::cuda
