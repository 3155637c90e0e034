#include "transports/tcp/stream.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "transports/tcp/rails.h"

namespace muster::tcp {
namespace {

static_assert(offsetof(WireHeader, secret) == 0);
constexpr size_t kUnsent = sizeof(WireHeader::secret);
constexpr size_t kHeaderBytes = sizeof(WireHeader) - kUnsent;
constexpr size_t kMostParts = 64;

std::byte* sent_part(const WireHeader& h) { return reinterpret_cast<std::byte*>(const_cast<WireHeader*>(&h)) + kUnsent; }

[[noreturn]] void fail_broken(const char* call, const std::string& peer, int error) {
  fail_errno(error, fmt::format("{} {}", call, peer),
             "Its process has ended, or the connection was cut between the hosts: that rank's own error says more");
}

}  // namespace

size_t Stream::bytes_of(const WireOp& op) { return kHeaderBytes + op.header.bytes; }

Stream::Stream(Fd fd) : fd_(std::move(fd)), peer_(Place::of_peer(fd_.get()).text()) {}

void Stream::queue(WireOp& op) {
  queue_.push_back(&op);
  queued_ += bytes_of(op);
}

size_t Stream::bytes_under_way() const {
  int in_kernel = 0;
  return queued_ + (ioctl(fd_.get(), SIOCOUTQ, &in_kernel) == 0 ? static_cast<size_t>(in_kernel) : 0);
}

bool Stream::send(std::vector<WireOp*>* taken) {
  bool moved = false;
  while (!queue_.empty()) {
    iovec parts[kMostParts];
    size_t n = 0, bytes = 0, skip = first_sent_;
    const auto add = [&](const std::byte* at, size_t size) {
      const size_t skipped = std::min(skip, size);
      skip -= skipped;
      if (size == skipped) return;
      parts[n++] = {const_cast<std::byte*>(at) + skipped, size - skipped};
      bytes += size - skipped;
    };
    for (auto op = queue_.begin(); op != queue_.end() && n + 2 <= kMostParts; ++op) {
      add(sent_part((*op)->header), kHeaderBytes);
      add((*op)->payload, (*op)->header.bytes);
    }
    msghdr m{};
    m.msg_iov = parts;
    m.msg_iovlen = n;
    const ssize_t sent = sendmsg(fd_.get(), &m, MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EAGAIN) return moved;
      if (errno == EINTR) continue;
      fail_broken("send to", peer_, errno);
    }
    moved = true;
    queued_ -= static_cast<size_t>(sent);
    written_ += static_cast<uint64_t>(sent);
    for (first_sent_ += static_cast<size_t>(sent); !queue_.empty() && first_sent_ >= bytes_of(*queue_.front());) {
      first_sent_ -= bytes_of(*queue_.front());
      taken->push_back(queue_.front());
      queue_.pop_front();
    }
    if (static_cast<size_t>(sent) < bytes) return moved;
  }
  return moved;
}

uint64_t Stream::bytes_acknowledged() const {
  int in_kernel = 0;
  if (ioctl(fd_.get(), SIOCOUTQ, &in_kernel) != 0 || in_kernel < 0) return 0;
  return written_ - std::min(written_, static_cast<uint64_t>(in_kernel));
}

std::deque<WireOp*> Stream::abandon() {
  first_sent_ = queued_ = 0;
  return std::exchange(queue_, {});
}

bool Stream::receive(Reader& reader) {
  bool moved = false;
  for (size_t total = 0; total < kMostAtOnce;) {
    if (in_begin_ == in_end_) in_begin_ = in_end_ = 0;
    iovec parts[2];
    size_t n = 0, asked = 0;
    // A payload that belongs nowhere goes through the buffer.
    const bool straight = in_payload_ && at_;
    if (straight) parts[n++] = {at_, asked = left_};
    if (in_end_ < kInBuffer) parts[n++] = {in_ + in_end_, kInBuffer - in_end_};
    asked += kInBuffer - in_end_;
    msghdr m{};
    m.msg_iov = parts;
    m.msg_iovlen = n;
    const ssize_t got = recvmsg(fd_.get(), &m, 0);
    if (got < 0) {
      if (errno == EAGAIN) return moved;
      if (errno == EINTR) continue;
      fail_broken("recv from", peer_, errno);
    }
    if (got == 0) fail(Result::remote_error, "it closed the connection ({}): its process has ended, or has given up a connection that failed on its side. Its own error, or the kernel's log, says why", peer_);
    moved = true;
    total += static_cast<size_t>(got);
    size_t buffered = static_cast<size_t>(got);
    if (straight) {
      const size_t landed = std::min(left_, buffered);
      at_ += landed;
      left_ -= landed;
      buffered -= landed;
    }
    in_end_ += buffered;
    parse(reader);
    if (static_cast<size_t>(got) < asked) return true;
  }
  return moved;
}

void Stream::parse(Reader& reader) {
  for (;;) {
    const size_t there = in_end_ - in_begin_;
    if (in_payload_) {
      const size_t n = std::min(left_, there);
      if (at_ && n > 0) {
        std::memcpy(at_, in_ + in_begin_, n);
        at_ += n;
      }
      in_begin_ += n;
      left_ -= n;
      if (left_ > 0) return;
      in_payload_ = false;
      reader.end(header_);
      continue;
    }
    if (there < kHeaderBytes) {
      std::memmove(in_, in_ + in_begin_, there);
      in_begin_ = 0;
      in_end_ = there;
      return;
    }
    std::memcpy(sent_part(header_), in_ + in_begin_, kHeaderBytes);
    in_begin_ += kHeaderBytes;
    left_ = header_.bytes;
    at_ = reader.begin(header_);
    in_payload_ = true;
  }
}

}  // namespace muster::tcp
