// The memory that the ranks of one communicator on one host share: a memfd with no name anywhere, mapped by each process
// once. Pages are taken when first used.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "muster/types.h"
#include "transports/transport.h"

namespace muster {

// One call as its rank published it, so that others can name it. Written before the call's first message.
struct LedgerEntry {
  std::atomic<uint64_t> sequence;     // 1, 2, ...: published last
  std::atomic<uint64_t> shape;        // Coll | DataType << 8 | RedOp << 16 | root << 32
  std::atomic<uint64_t> count;
  std::atomic<uint64_t> fingerprint;
};
inline constexpr uint32_t kLedgerEntries = 16;  // a power of two

struct alignas(kCacheLine) RankControl {
  alignas(kCacheLine) Doorbell doorbell;
  alignas(kCacheLine) std::atomic<uint64_t> token;     // what this rank wrote to prove that it sees this memory
  std::atomic<uint64_t> entered;                       // sequence of the last call this rank started
  std::atomic<uint32_t> left;                          // 1: destroyed its communicator
  std::atomic<uint32_t> in_windows;                    // 1: may be using other ranks' buffers
  alignas(kCacheLine) LedgerEntry ledger[kLedgerEntries];
};

// The first error of the communicator; every rank on the host reports the same one.
struct alignas(kCacheLine) ErrorRecord {
  std::atomic<uint32_t> state;  // 0 none, 1 being written, 2 set
  int32_t code;
  char message[2040];
};

class Segment {
 public:
  struct Geometry {
    int nranks = 0;
    int lanes = 0;
    size_t slot_bytes = 0;       // largest message of a lane
    size_t last_slot_bytes = 0;  // of the last lane, which has point-to-point messages
    friend bool operator==(const Geometry&, const Geometry&) = default;
  };

  // A new segment; its descriptor is to be passed to the other processes.
  static std::shared_ptr<Segment> create(const Geometry& g, uint64_t token, Fd* descriptor);
  // Maps a segment received from its creator.
  static std::shared_ptr<Segment> map(const Geometry& g, const Fd& descriptor);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  const Geometry& geometry() const { return geometry_; }
  size_t slot_bytes(int lane) const { return lane == geometry_.lanes - 1 ? geometry_.last_slot_bytes : geometry_.slot_bytes; }
  uint64_t token() const;
  ErrorRecord& error();
  RankControl& control(int rank);
  // Memory of the connection from -> to. lines() reserves it, so that touching it can't fail later; data() is to be
  // reserved by the sender before its first message that doesn't fit a line.
  ConnectionLines* lines(int from, int to, int lane);
  std::byte* data(int from, int to, int lane);
  void reserve_data(int from, int to, int lane);
  // Bytes of memory that the segment occupies now (all processes together).
  size_t resident_bytes() const;

 private:
  Segment(const Geometry& g, Fd fd);
  size_t index(int from, int to, int lane) const;
  void reserve(size_t offset, size_t bytes);

  Geometry geometry_;
  Fd fd_;
  std::byte* base_ = nullptr;
  size_t lines_at_ = 0, data_at_ = 0, bytes_ = 0;
};

// The shared-memory transport of one rank.
class ShmTransport final : public Transport {
 public:
  ShmTransport(std::shared_ptr<Segment> segment, int rank);
  std::string_view name() const override { return "shm"; }
  size_t slot_bytes() const override { return segment_->geometry().slot_bytes; }
  int lanes() const override { return segment_->geometry().lanes; }
  SlotSender& sender(int peer, int lane, size_t largest) override;
  SlotReceiver& receiver(int peer, int lane) override;

 private:
  std::shared_ptr<Segment> segment_;
  int rank_;
  struct Sender {
    std::unique_ptr<SlotSender> end;
    bool has_data = false;
  };
  std::vector<Sender> senders_;  // by peer and lane
  std::vector<std::unique_ptr<SlotReceiver>> receivers_;
};

}  // namespace muster
