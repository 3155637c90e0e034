#include "bootstrap/search.h"

#include <cerrno>

#include "base/error.h"

namespace muster {
namespace {

constexpr std::chrono::milliseconds kRetry{100};
// Nothing that the other one has to do with.
bool is_shortage_here(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM || error == EADDRNOTAVAIL;
}
constexpr int kFarther = 16;  // of the patience passes in so many parts before the next is asked

}  // namespace

Search::Search(EventLoop& loop, Credentials credentials, Source source, std::vector<Candidate> candidates, bool ask,
               std::chrono::milliseconds patience, std::chrono::milliseconds silence, Events events)
    : loop_(loop),
      credentials_(std::move(credentials)),
      source_(std::move(source)),
      ask_(ask),
      patience_(patience),
      silence_(silence),
      events_(std::move(events)) {
  for (Candidate& c : candidates) tries_.emplace_back().candidate = std::move(c);
}

Search::~Search() {
  loop_.cancel(farther_);
  for (Try& t : tries_) loop_.cancel(t.retry);
}

void Search::start() {
  const auto self = shared_from_this();
  step();
}

void Search::leave_out(int rank) {
  const auto self = shared_from_this();
  for (Try& t : tries_)
    if (t.candidate.rank == rank && t.state != State::gone) {
      t.state = State::left_out;
      t.dialing.reset();
      loop_.cancel(std::exchange(t.retry, 0));
    }
  // Whoever says so is in the middle of something.
  loop_.post([weak = weak_from_this()] {
    if (const auto s = weak.lock()) s->step();
  });
}

void Search::step() {
  while (!over_ && front_ < tries_.size()) {
    const State state = tries_[front_].state;
    if (state != State::gone && state != State::left_out) break;
    const Try& t = tries_[front_++];
    if (state == State::gone) events_.gone(t.candidate.rank, t.why);
  }
  if (over_) return;
  if (front_ == tries_.size()) {
    over_ = true;
    return events_.none();
  }
  Try& t = tries_[front_];
  if (t.state == State::alive && ask_) {
    over_ = true;
    return events_.found(t.candidate.rank, ProcessFd());
  }
  if (t.state == State::untried || t.state == State::alive) dial(front_);
}

void Search::dial(size_t i) {
  Try& t = tries_[i];
  const auto now = EventLoop::Clock::now();
  if (t.limit == EventLoop::Clock::time_point{}) t.limit = now + patience_;
  tried_ = std::max(tried_, i + 1);
  t.state = State::dialing;
  Credentials c = credentials_;
  c.token = t.candidate.token;
  const bool ask = ask_ || i != front_;
  t.dialing = std::make_unique<Dialing>(loop_, t.candidate.target, source_, c, ask, std::max(t.limit, now + kRetry), silence_,
                                        [this, i, ask](Dialing::Outcome o) { on_outcome(i, ask, std::move(o)); });
  loop_.cancel(farther_);
  farther_ = loop_.at(now + patience_ / kFarther, [this] {
    farther_ = 0;
    look_farther();
  });
}

// The last one tried seems to be unreachable.
void Search::look_farther() {
  const Try& last = tries_[tried_ - 1];
  const bool answers = last.state == State::alive || (last.dialing && last.dialing->connected());
  if (!ask_ && !answers && tried_ < tries_.size() && tries_[tried_].state == State::untried) dial(tried_);
}

void Search::on_outcome(size_t i, bool asked, Dialing::Outcome o) {
  const auto self = shared_from_this();
  Try& t = tries_[i];
  const auto dialing = std::move(t.dialing);  // this is its last word
  if (over_ || t.state != State::dialing) return;
  if (o.error == 0 && o.greeting.outcome == Greeting::welcome) {
    if (!asked) {
      over_ = true;
      return events_.found(t.candidate.rank, std::move(o.fd));
    }
    t.state = State::alive;
    return step();
  }
  t.why.reason = o.error ? describe_connect_error(o.error) : explain(o.greeting.outcome);
  const bool unclear = o.error ? o.error != ECONNREFUSED : o.greeting.outcome == Greeting::closed;
  const auto now = EventLoop::Clock::now();
  if (unclear && (now < t.limit || is_shortage_here(o.error))) {
    t.retry = loop_.at(now + kRetry, [this, i] {
      tries_[i].retry = 0;
      dial(i);
    });
    return;
  }
  t.state = State::gone;
  t.why.unreachable = unclear;
  if (i + 1 == tried_) look_farther();
  step();
}

}  // namespace muster
