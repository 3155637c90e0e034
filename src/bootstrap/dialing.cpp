#include "bootstrap/dialing.h"

#include <sys/epoll.h>

#include <cerrno>

namespace muster {

Dialing::Dialing(EventLoop& loop, const Address& target, const Source& source, const Credentials& credentials, bool ask,
                 EventLoop::Clock::time_point limit, std::chrono::milliseconds silence, std::function<void(Outcome)> done)
    : loop_(loop), target_(target), credentials_(credentials), ask_(ask), silence_(silence), done_(std::move(done)) {
  SocketError error;
  fd_ = begin_connect(target, source, error);
  if (!fd_) {  // not from inside the constructor
    timer_ = loop_.at(EventLoop::Clock::now(), [this, error] { end(error.error, {}); });
    return;
  }
  watch_ = loop_.watch(fd_.get(), EPOLLOUT, [this] { on_ready(); });
  timer_ = loop_.at(limit, [this] { end(ETIMEDOUT, {}); });
}

Dialing::~Dialing() {
  loop_.unwatch(watch_);
  loop_.cancel(timer_);
}

void Dialing::end(int error, Greeting greeting) {
  loop_.unwatch(std::exchange(watch_, 0));
  loop_.cancel(std::exchange(timer_, 0));
  const auto done = std::move(done_);
  const bool welcome = error == 0 && greeting.outcome == Greeting::welcome && !ask_;
  done({error, greeting, welcome ? std::move(fd_) : ProcessFd()});
}

void Dialing::on_connected() {
  if (const int e = end_connect(fd_.get(), target_)) return end(e, {});
  connected_ = true;
  loop_.cancel(std::exchange(timer_, 0));
  limit_silence(fd_.get(), silence_);
  hello_ = make_hello(credentials_);
  loop_.change(watch_, EPOLLIN);
  // 80 bytes into an empty socket buffer: they fit or the connection is broken.
  if (send(fd_.get(), hello_.data(), hello_.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(hello_.size()))
    end(0, {Greeting::closed});
}

void Dialing::on_ready() {
  if (!connected_) return on_connected();
  while (reply_.size() < kReplyBytes) {
    char buffer[kReplyBytes];
    const ssize_t n = recv(fd_.get(), buffer, kReplyBytes - reply_.size(), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (n < 0 && errno == ETIMEDOUT) return end(errno, {});
    if (n <= 0) return end(0, {Greeting::closed});
    reply_.append(buffer, static_cast<size_t>(n));
    if (!begins_as_hello(reply_)) return end(0, {Greeting::stranger});
  }
  const Greeting greeting = judge_reply(credentials_, hello_, reply_);
  if (greeting.outcome == Greeting::welcome && !ask_) {
    const Digest proof = make_proof(credentials_.key, hello_, reply_);
    if (send(fd_.get(), proof.data(), proof.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(proof.size()))
      return end(0, {Greeting::closed});
  }
  end(0, greeting);
}

}  // namespace muster
