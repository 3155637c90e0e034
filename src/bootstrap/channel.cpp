#include "bootstrap/channel.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>

#include "bootstrap/socket.h"
#include "bootstrap/wire.h"

namespace muster {
namespace {
constexpr std::chrono::seconds kFarewell{
    5};  // what a stopped peer may delay the closing of a finished channel
}

SecureChannel::SecureChannel(EventLoop& loop, ProcessFd fd, Events events)
    : loop_(loop), fd_(std::move(fd)), events_(std::move(events)) {
  watch_ = loop_.watch(fd_.get(), EPOLLIN, [this] { on_ready(); });
}

SecureChannel::~SecureChannel() {
  loop_.unwatch(watch_);
  loop_.cancel(soon_);
}

void SecureChannel::limit_silence(std::chrono::milliseconds most) { muster::limit_silence(fd_.get(), most); }

void SecureChannel::send(std::string_view message) {
  if (!writable_ || ended_) return;
  out_ += Writer().text(message).take();
  if (soon_) return;
  soon_ = loop_.at(EventLoop::Clock::time_point{}, [this] {
    soon_ = 0;
    if (!ended_) flush();
  });
}

void SecureChannel::flush() {
  while (writable_ && sent_ < out_.size()) {
    const ssize_t n = ::send(fd_.get(), out_.data() + sent_, out_.size() - sent_, MSG_NOSIGNAL);
    if (n >= 0)
      sent_ += static_cast<size_t>(n);
    else if (errno == EAGAIN || errno == EWOULDBLOCK)
      break;
    else if (errno != EINTR)
      writable_ = false;
  }
  if (!writable_ || sent_ == out_.size()) {
    out_.clear();
    sent_ = 0;
    if (finishing_) shutdown(fd_.get(), SHUT_WR);
  } else if (sent_ > out_.size() / 2) {
    out_.erase(0, sent_);
    sent_ = 0;
  }
  loop_.change(watch_, EPOLLIN | (out_.empty() ? 0u : EPOLLOUT));
}

int SecureChannel::read_some() {
  char buffer[16 << 10];
  for (;;) {
    const ssize_t n = recv(fd_.get(), buffer, sizeof buffer, 0);
    if (n > 0) {
      if (!finishing_) in_.append(buffer, static_cast<size_t>(n));
      if (static_cast<size_t>(n) < sizeof buffer) return kMore;
    } else if (n == 0) {
      return 0;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return kMore;
    } else if (errno != EINTR) {
      return errno;
    }
  }
}

void SecureChannel::parse() {
  size_t at = 0;
  while (!finishing_ && !ended_ && in_.size() - at >= 4) {
    const uint32_t size = Reader(std::string_view(in_).substr(at, 4)).u32();
    if (size > kMaxMessage) return end(EBADMSG);
    if (in_.size() - at - 4 < size) break;
    const std::string message = in_.substr(at + 4, size);
    at += 4 + size;
    events_.message(message);
  }
  in_.erase(0, at);
}

void SecureChannel::end(int error) {
  if (ended_) return;
  ended_ = true;
  loop_.unwatch(std::exchange(watch_, 0));
  if (events_.end) events_.end(error);
}

void SecureChannel::on_ready() {
  if (!out_.empty()) flush();
  const int state = read_some();
  parse();  // what came before the end counts
  if (state != kMore) end(state);
}

void SecureChannel::retire(std::unique_ptr<SecureChannel> channel) {
  if (!channel) return;
  channel->loop_.unwatch(std::exchange(channel->watch_, 0));
  channel->ended_ = true;
  channel->loop_.cancel(std::exchange(channel->soon_, 0));
  EventLoop& loop = channel->loop_;
  loop.post([owner = std::shared_ptr<SecureChannel>(std::move(channel))]() mutable { owner.reset(); });
}

void SecureChannel::finish(std::unique_ptr<SecureChannel> channel) {
  if (!channel) return;
  if (channel->ended_) return retire(std::move(channel));
  SecureChannel* c = channel.get();
  EventLoop& loop = c->loop_;
  // Kept until the peer has closed its end too: closing first, with bytes of the peer unread, would discard
  // ours.
  auto owner = std::make_shared<std::unique_ptr<SecureChannel>>(std::move(channel));
  const EventLoop::Handle timer = loop.at(EventLoop::Clock::now() + kFarewell, [owner] { retire(std::move(*owner)); });
  c->events_.end = [owner, timer, &loop](int) {
    loop.cancel(timer);
    retire(std::move(*owner));
  };
  c->finishing_ = true;
  c->flush();
}

}  // namespace muster
