// The memory that the ranks of one communicator on one host share: a memfd with no name anywhere, mapped by each process
// once. Pages are taken when first used. Communicators made of others have theirs further back in the same file.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "muster/types.h"
#include "transports/shm/segment_head.h"
#include "transports/transport.h"

namespace muster {

// What one rank tells all others outside of connections, so also when those don't work any more: two notes, written in
// turn. Texts are words so that they may be read while they are overwritten.
struct Board {
  static constexpr size_t kWords = 54;
  static constexpr size_t kBytes = kWords * 8;
  struct alignas(kCacheLine) Note {
    std::atomic<uint64_t> stamp;  // names exchange and round; published last
    std::atomic<uint64_t> left;   // bytes of the whole text from this note's on
    std::atomic<uint64_t> text[kWords];
  };
  Note notes[2];
  alignas(kCacheLine) std::atomic<uint64_t> attempt;  // which exchange of some ranks this rank is or was in
  std::atomic<uint64_t> open;                         // 1: it is in it
};
// Exchanges of all ranks, which count alike; and of some, which agree on a number first.
enum class BoardKind : int { all = 0, some = 1 };

// Counters that each rank has for the signals of each rank.
inline constexpr size_t kSignals = 4096;

class Segment {
 public:
  struct Geometry {
    int nranks = 0;
    int lanes = 0;
    size_t slot_bytes = 0;       // largest message of a lane
    size_t last_slot_bytes = 0;  // of the last lane, which has point-to-point messages
    friend bool operator==(const Geometry&, const Geometry&) = default;
  };

  // A new file; its descriptor is to be passed to the other processes.
  static std::shared_ptr<Segment> create(const Geometry& g, uint64_t token, Fd* descriptor);
  // Maps a file received from its creator.
  static std::shared_ptr<Segment> map(const Geometry& g, const Fd& descriptor);

  // Room in the file for one more communicator. Given out by one of its ranks; the others are told.
  struct Room {
    uint64_t number = 0;  // of this file's communicators: 1, 2, ...
    uint64_t offset = 0;
  };
  // Of the file's first segment. Any thread and process. Its pages are reserved as far as an unused communicator needs them.
  Room allot(const Geometry& g);
  uint64_t next_number();  // for one that needs no memory
  // Maps what was allotted.
  static std::shared_ptr<Segment> map(const Geometry& g, const Segment& first, const Room& room);
  // One rank uses it no more. After the last one its pages go back to the system.
  void leave();
  // Says what it is for, once, by one of its ranks.
  void describe(uint64_t id, uint64_t parent, int size, std::string_view name);
  // Its pages go back at once: it came to nothing, and nobody uses it.
  void discard();
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  const Geometry& geometry() const { return geometry_; }
  size_t slot_bytes(int lane) const { return lane == geometry_.lanes - 1 ? geometry_.last_slot_bytes : geometry_.slot_bytes; }
  uint64_t token() const;
  ErrorRecord& error() const { return *error_; }
  RankControl& control(int rank) const { return controls_[rank]; }
  // A rank's board; reserve_boards() before the first use.
  Board& board(int rank, BoardKind kind);
  void reserve_boards();
  // Memory of the connection from -> to. lines() reserves it, so that touching it can't fail later; data() is to be
  // reserved by the sender, as far as its ring of bytes reaches, before a message that doesn't fit a line or the ring.
  ConnectionLines* lines(int from, int to, int lane);
  std::byte* data(int from, int to, int lane);
  void reserve_data(int from, int to, int lane, size_t bytes);
  void release_data(int from, int to, int lane, size_t bytes);  // by the sender, when no message is under way
  // Where `to` counts the signals of `from`: kSignals counters. A page of them is to be reserved by whoever touches it first.
  static constexpr size_t kSignalsPerPage = 4096 / sizeof(uint64_t);
  std::atomic<uint64_t>* signals(int from, int to);
  void reserve_signal(int from, int to, size_t index);
  size_t control_bytes() const { return boards_at_; }
  size_t boards_bytes() const { return lines_at_ - boards_at_; }
  // Bytes of memory that the whole file occupies now (all processes together).
  size_t resident_bytes() const;

 private:
  Segment(const Geometry& g, std::shared_ptr<const Fd> file, uint64_t offset);
  SegmentHead& head() const { return *reinterpret_cast<SegmentHead*>(base_); }
  void write_head();
  void map_memory();
  size_t index(int from, int to, int lane) const;
  void reserve(size_t offset, size_t bytes);
  void punch(size_t offset, size_t bytes) noexcept;

  Geometry geometry_;
  std::shared_ptr<const Fd> file_;
  uint64_t offset_ = 0;  // in the file
  std::byte* base_ = nullptr;
  ErrorRecord* error_ = nullptr;
  RankControl* controls_ = nullptr;
  size_t boards_at_ = 0, lines_at_ = 0, data_at_ = 0, signals_at_ = 0, bytes_ = 0;
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

  // Bytes that this rank has reserved as a sender: of lines, and of messages that don't fit them.
  struct Reserved {
    size_t lines = 0, data = 0;
  };
  Reserved reserved() const { return {lines_.load(std::memory_order_relaxed), data_.load(std::memory_order_relaxed)}; }  // any thread
  // Gives the memory of messages back, and takes it again. No messages may be under way, nor sent in between.
  void release_data();
  void reserve_data();  // throws system_error, and keeps nothing, when it can't be had

 private:
  void reserve_data(int peer, int lane, size_t bytes);  // of the ring that this rank sends in; throws system_error

  std::shared_ptr<Segment> segment_;
  int rank_;
  struct Sender {
    std::unique_ptr<SlotSender> end;
    size_t data = 0;  // bytes reserved for its ring
  };
  std::vector<Sender> senders_;  // by peer and lane
  std::vector<std::unique_ptr<SlotReceiver>> receivers_;
  std::atomic<size_t> lines_{0}, data_{0};
};

}  // namespace muster
