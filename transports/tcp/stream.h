// One socket between two ranks that stands, and the messages that go by it, each its header and then its payload.
//
// A header goes without the secret: the connection has proved whose it is. Payloads are sent from where they lie and received
// where they belong; only what comes together with a header, kInBuffer bytes at most, is copied.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "base/fd.h"
#include "transports/tcp/settings.h"
#include "transports/wire_end.h"

namespace muster::tcp {

class Stream {
 public:
  static constexpr size_t kInBuffer = 4096;

  explicit Stream(Fd fd);  // connected

  int fd() const { return fd_.get(); }

  // --- out ---
  void queue(WireOp& op);
  bool has_queued() const { return !queue_.empty(); }
  size_t bytes_under_way() const;  // queued, or not yet acknowledged by the peer's host
  static size_t bytes_of(const WireOp& op);  // in a stream
  // Sends what the kernel takes. Those that it has taken all of are added to `taken`. True if anything moved. Throws system_error where
  // the connection is broken.
  bool send(std::vector<WireOp*>* taken);
  uint64_t bytes_acknowledged() const;  // by the peer's host, of all that were sent: no more than that, perhaps less
  // What is queued, also what was partly sent; nothing is queued any more.
  std::deque<WireOp*> abandon();

  // --- in ---
  struct Reader {
    virtual std::byte* begin(WireHeader& header) = 0;  // where its payload belongs; null: nowhere
    virtual void end(const WireHeader& header) = 0;    // it lies there

   protected:
    ~Reader() = default;
  };
  // What has come, up to kMostAtOnce bytes. Throws like send(), also where the peer has closed it.
  bool receive(Reader& reader);
  std::string peer() const { return peer_; }
  bool landing() const { return in_payload_; }  // begun, and not ended

  Silence silence;

 private:
  static constexpr size_t kMostAtOnce = 1 << 20;
  void parse(Reader& reader);

  Fd fd_;
  const std::string peer_;  // its address
  std::deque<WireOp*> queue_;
  size_t first_sent_ = 0;  // bytes of the first that are sent
  size_t queued_ = 0;      // bytes
  uint64_t written_ = 0;   // that the kernel has taken

  WireHeader header_{};    // of the message that comes
  bool in_payload_ = false;
  std::byte* at_ = nullptr;
  size_t left_ = 0;        // of its payload
  std::byte in_[kInBuffer];
  size_t in_begin_ = 0, in_end_ = 0;
};

}  // namespace muster::tcp
