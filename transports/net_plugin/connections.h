// Connections of a plugin, each in one direction and in order: what goes out by one, and what comes in.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "transports/net_plugin/plugin.h"
#include "transports/registrations.h"
#include "transports/wire_end.h"

namespace muster::net_plugin {

// A short message has its payload behind its header, and is copied at both ends.
inline constexpr size_t kShort = 4096;
inline constexpr size_t kRecord = sizeof(WireHeader) + kShort;
inline constexpr size_t kUnderWay = 16;  // of a connection at a time; NCCL's own limit is kMostRequests
static_assert(kUnderWay <= net_abi::kMostRequests);

// Bytes that a plugin knows, for one connection.
class PluginMemory {
 public:
  PluginMemory() = default;
  PluginMemory(const Plugin& plugin, void* comm, size_t bytes);
  ~PluginMemory();
  PluginMemory(PluginMemory&& o) noexcept { *this = std::move(o); }
  PluginMemory& operator=(PluginMemory&& o) noexcept;
  std::byte* data() const { return data_.get(); }
  size_t size() const { return size_; }
  void* handle() const { return handle_; }

 private:
  const Plugin* plugin_ = nullptr;
  void* comm_ = nullptr;
  std::unique_ptr<std::byte[]> data_;
  size_t size_ = 0;
  void* handle_ = nullptr;
};

// Rings of connections' ends, and GPU memory, that a plugin knows for one connection.
class KnownRings {
 public:
  ~KnownRings() { clear(); }
  void* handle_of(const Plugin& plugin, void* comm, std::span<std::byte> ring, Plugin::Kind kind = Plugin::Kind::host);
  void clear() noexcept;  // before the connection is closed
  void forget(const std::byte* ring) noexcept;

 private:
  struct Known {
    std::span<std::byte> ring;
    void* handle;
  };
  const Plugin* plugin_ = nullptr;
  void* comm_ = nullptr;
  std::vector<Known> known_;
};

// A message of a network on its way: done when all its parts are.
struct Outgoing {
  WireOp* op = nullptr;
  int parts = 0;
};

class SendComm {
 public:
  SendComm(const Plugin& plugin, void* context, int device, const Handle& handle)
      : plugin_(plugin), context_(context), device_(device), handle_(handle) {}
  ~SendComm();
  SendComm(const SendComm&) = delete;
  SendComm& operator=(const SendComm&) = delete;

  bool connect();  // true: it is there
  bool has_record() const { return waiting_.size() + flying_.size() < kUnderWay; }
  // Copies both. has_record() first.
  void send_record(std::span<const std::byte> head, std::span<const std::byte> rest, const std::shared_ptr<Outgoing>& of);
  // `ring`: of the end, if the payload lies there, or the GPU memory that it lies in. Else it goes from where it lies if that is LastingMemory, which is registered once; if
  // not it is copied first, when there is room.
  void send_payload(std::span<const std::byte> payload, std::span<std::byte> ring, Plugin::Kind kind, size_t slot_bytes,
                    const std::shared_ptr<Outgoing>& of);
  // Moves what can be moved; what is done is added to `done`.
  bool advance(std::vector<WireOp*>& done);
  // Adds what is still under way.
  void abandon(std::vector<WireOp*>& ops) const;
  KnownRings& rings() { return rings_; }

 private:
  struct Part {
    std::span<const std::byte> from;
    void* memory = nullptr;
    size_t room = 0;  // not 0: of users' memory, to be copied into so much
    std::optional<size_t> copy;  // of copies_
    std::shared_ptr<const void> lasting;  // users' memory as the plugin knows it
    std::shared_ptr<Outgoing> of;
    void* request = nullptr;
  };
  struct Copy {
    PluginMemory memory;
    bool used = false;
  };
  bool stage(Part& p);

  const Plugin& plugin_;
  void* const context_;
  const int device_;
  Handle handle_;
  void* comm_ = nullptr;
  PluginMemory records_;
  uint64_t record_ = 0;
  KnownRings rings_;
  std::optional<Registrations> lasting_;  // once it is connected
  std::vector<Copy> copies_;
  std::deque<Part> waiting_, flying_;
};

class ReceiveComm {
 public:
  ReceiveComm(const Plugin& plugin, void* comm) : plugin_(plugin), comm_(comm) {}
  ~ReceiveComm();
  ReceiveComm(const ReceiveComm&) = delete;
  ReceiveComm& operator=(const ReceiveComm&) = delete;

  // Records come one by one, in order; empty: none is there. Valid until the next call.
  std::span<const std::byte> next_record(size_t records);
  // Payloads come where they belong, in order. `ring`: which they lie in; empty: the payload is read and dropped.
  void expect(std::span<std::byte> to, std::span<std::byte> ring, size_t bytes);
  size_t expected() const { return awaited_.size(); }
  // The first of those expected has come: its bytes, or nothing.
  std::optional<size_t> next_payload();
  KnownRings& rings() { return rings_; }

 private:
  struct Awaited {
    std::byte* to;
    size_t bytes;
    void* memory;
    PluginMemory dropped;
    void* request = nullptr;
  };
  const Plugin& plugin_;
  void* const comm_;
  PluginMemory records_;
  std::vector<void*> requests_;  // by record
  uint64_t posted_ = 0, taken_ = 0;
  KnownRings rings_;
  std::deque<Awaited> awaited_;
};

}  // namespace muster::net_plugin
