#include "comm/exchange.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "base/error.h"
#include "base/math.h"
#include "comm/mismatch.h"
#include "comm/part_watch.h"
#include "comm/told.h"
#include "comm/whereabouts.h"

namespace muster {

using Impl = Communicator::Impl;

namespace {

std::vector<int> all_but(const std::vector<int>& excluded, int size) {
  std::vector<int> ranks;
  for (int r = 0; r < size; ++r)
    if (!std::binary_search(excluded.begin(), excluded.end(), r)) ranks.push_back(r);
  return ranks;
}

// Who is excluded, as it stands in a note: a hash of all, and a bit for each of the first ranks, as many as
// fit.
class ExcludedList {
 public:
  ExcludedList() = default;
  explicit ExcludedList(std::string text) : text_(std::move(text)) {}
  explicit ExcludedList(const std::vector<int>& ranks) : text_(sizeof(uint64_t), '\0') {
    uint64_t hash = 0;
    for (const int r : ranks) {
      hash = hash_combine(hash, static_cast<uint64_t>(r));
      const size_t byte = sizeof hash + static_cast<size_t>(r) / 8;
      if (byte >= Board::kBytes) continue;
      if (byte >= text_.size()) text_.resize(byte + 1);
      text_[byte] = static_cast<char>(text_[byte] | 1 << r % 8);
    }
    std::memcpy(text_.data(), &hash, sizeof hash);
  }
  const std::string& text() const { return text_; }
  bool has(int rank) const {
    const size_t byte = sizeof(uint64_t) + static_cast<size_t>(rank) / 8;
    return byte < text_.size() && (text_[byte] >> rank % 8 & 1);
  }
  std::string describe() const {
    std::vector<int> ranks;
    for (size_t r = 0; r < (text_.size() - sizeof(uint64_t)) * 8; ++r)
      if (has(static_cast<int>(r))) ranks.push_back(static_cast<int>(r));
    return ranks.empty() ? "no rank"
                         : fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
  }

 private:
  std::string text_;
};

}  // namespace

class Exchange::Watch final : public Waiter::Watch {
 public:
  explicit Watch(Exchange& x) : x_(x) {}
  bool tripped() const override { return x_.tripped(); }
  void check(std::chrono::nanoseconds waited) override {
    note_wait(x_.comm_, RankWait::exchange, x_.awaited_, waited);
    x_.look(x_.awaited_, waited);
  }

 private:
  Exchange& x_;
};

Exchange::Exchange(Impl& comm, LifeCall step, BoardKind kind, std::vector<int> ranks, Deadline deadline)
    : comm_(comm), step_(step), kind_(kind), ranks_(std::move(ranks)), deadline_(deadline) {}

Exchange::~Exchange() {
  forget_wait(comm_);
  if (running_) comm_.running.store(false, std::memory_order_release);
}

void Exchange::put(uint64_t stamp, std::string_view rest) {
  stamp_ = stamp;
  Board::Note& note = board(comm_.rank).notes[stamp & 1];
  note.left.store(rest.size(), std::memory_order_relaxed);
  const size_t bytes = std::min(rest.size(), Board::kBytes);
  for (size_t i = 0; i * 8 < bytes; ++i) {
    uint64_t word = 0;
    std::memcpy(&word, rest.data() + i * 8, std::min<size_t>(8, bytes - i * 8));
    note.text[i].store(word, std::memory_order_relaxed);
  }
  note.stamp.store(stamp, std::memory_order_release);
  tell_board(comm_, kind_, &note);
  comm_.shown->ring_all();
}

bool Exchange::read(int rank, uint64_t stamp, std::string* piece, size_t* left) const {
  const Board::Note& note = board(rank).notes[stamp & 1];
  if (note.stamp.load(std::memory_order_acquire) != stamp) return false;
  *left = note.left.load(std::memory_order_relaxed);
  piece->resize(std::min(*left, Board::kBytes));
  for (size_t i = 0; i * 8 < piece->size(); ++i) {
    const uint64_t word = note.text[i].load(std::memory_order_acquire);
    std::memcpy(piece->data() + i * 8, &word, std::min<size_t>(8, piece->size() - i * 8));
  }
  return note.stamp.load(std::memory_order_relaxed) == stamp;  // not overwritten meanwhile
}

bool Exchange::all_there() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [&](int r) {
    return board(r).notes[stamp_ & 1].stamp.load(std::memory_order_acquire) == stamp_;
  });
}

template <class Done>
void Exchange::wait(Done done) {
  Watch watch(*this);
  Doorbell* bell = &comm_.own_control->doorbell;
  Waiter waiter(comm_.wait, {&bell, 1u}, &watch, comm_.alarm());
  while (!done())
    if (comm_.progress())  // of what others still need for their last call
      waiter.reset();
    else
      waiter.pause();
}

std::vector<std::string> Exchange::all_gather(std::string_view mine) {
  if (alone()) return {std::string(mine)};
  std::vector<std::string> texts(ranks_.size()), pieces(ranks_.size());
  std::vector<size_t> left(ranks_.size());
  for (bool more = true; more;) {
    put(next_stamp(), mine);
    size_t here = 0;
    wait([&] {
      for (; here < ranks_.size(); ++here)
        if (!read(ranks_[here], stamp_, &pieces[here], &left[here])) {
          awaited_ = ranks_[here];
          return false;
        }
      return true;
    });
    more = false;
    for (size_t i = 0; i < texts.size(); ++i) {
      texts[i] += pieces[i];
      more = more || left[i] > Board::kBytes;
    }
    mine.remove_prefix(std::min(mine.size(), Board::kBytes));
  }
  return texts;
}

std::string Exchange::absence(int rank) const {
  if (comm_.control(rank).left.load(std::memory_order_acquire))
    return "has destroyed its communicator";
  if (comm_.has_ended(rank)) return "ended without leaving the communicator";
  return {};
}

std::string Exchange::describe_missing() const {
  std::string text;
  for (const int r : ranks_)
    if (r == awaited_ || board(r).notes[stamp_ & 1].stamp.load(std::memory_order_acquire) != stamp_)
      text += (text.empty() ? "" : ", ") + comm_.rank_name(r);
  return text;
}

std::string Exchange::timeout_text() const {
  return fmt::format("communicator {}: {} did not call {} in time (waiting: {}). {} allows more time",
                     comm_.name, describe_missing(), name_of(step_), comm_.rank_name(comm_.rank),
                     makes(step_) ? "MUSTER_INIT_TIMEOUT" : "MUSTER_TIMEOUT");
}

// --- all ranks ---

CollectiveExchange::CollectiveExchange(Impl& comm, LifeCall step, Deadline deadline)
    : Exchange(comm, step, BoardKind::all, all_but({}, comm.size), deadline) {
  comm.begin_call();
  running_ = true;
  if (alone()) return;
  try {
    comm.reserve_boards();
  } catch (const Error& e) {
    raise(comm, e.code(), e.what());  // memory is short on this rank only, and the others must not wait
  }
  const CallShape shape = shape_of(step);
  ++comm.sequence;
  fingerprint_ = hash_combine(CallShapeHash()(shape), comm.sequence) & ~kMessageBit;
  comm.publish(shape, fingerprint_);
}

CollectiveExchange::~CollectiveExchange() {
  if (!comm_.failed()) comm_.publish_end();
}

void CollectiveExchange::look(int awaited, std::chrono::nanoseconds waited) {
  if (all_there()) return;
  if (comm_.failed()) comm_.throw_error();
  for (const int r : ranks_) {
    const auto theirs = published_call(comm_, r, comm_.sequence);
    if (theirs && theirs->fingerprint != fingerprint_)
      raise_call_mismatch(comm_, fmt::format("{} as call {}", name_of(step_), comm_.sequence), r,
                          theirs->text());
  }
  if (const std::string what = absence(awaited); !what.empty() && !all_there())
    raise(comm_, Result::remote_error,
          fmt::format("communicator {}: {} {} while {} waits for it in {}", comm_.name,
                      comm_.rank_name(awaited), what, comm_.rank_name(comm_.rank), name_of(step_)));
  if (deadline_.expired()) raise(comm_, Result::timeout, timeout_text());
  warn_when_late(comm_, name_of(step_), ", waiting for " + describe_missing(), waited, &next_warning_);
}

// --- survivors ---

SurvivorExchange::SurvivorExchange(Impl& comm, LifeCall step, const std::vector<int>& excluded,
                                   bool watches_errors, Deadline deadline)
    : Exchange(comm, step, BoardKind::some, all_but(excluded, comm.size), deadline),
      watches_errors_(watches_errors) {
  // A call that failed may still be on its way out.
  while (comm.running.exchange(true, std::memory_order_acquire)) {
    if (deadline.expired())
      fail(Result::invalid_usage,
           "communicator {}: {} while another thread is in a call of it. Use a communicator from one thread "
           "at a time",
           comm.name, name_of(step));
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  running_ = true;
  if (alone()) return;
  comm.reserve_boards();
  try {
    agree_on(excluded);
  } catch (...) {
    close();
    throw;
  }
}

SurvivorExchange::~SurvivorExchange() { close(); }

void SurvivorExchange::close() {
  if (!attempt_) return;
  board(comm_.rank).open.store(0, std::memory_order_release);
  tell_board(comm_, kind_, nullptr);
}

// Exchanges of different ranks have different numbers, so one number can't be counted by each alone: a rank
// that comes first takes one that was never used, the others take that of whom they wait for.
void SurvivorExchange::choose_attempt() {
  uint64_t most = 0, open = 0;
  for (int r = 0; r < comm_.size; ++r) {
    const uint64_t a = board(r).attempt.load(std::memory_order_acquire);
    most = std::max(most, a);
    if (a > comm_.attempts && board(r).open.load(std::memory_order_acquire) &&
        std::binary_search(ranks_.begin(), ranks_.end(), r))
      open = std::max(open, a);
  }
  attempt_ = open ? open : most + 1;
}

void SurvivorExchange::publish(const std::string& list) {
  comm_.attempts = attempt_;
  round_ = 0;
  put(next_stamp(), list);
  Board& mine = board(comm_.rank);
  mine.attempt.store(attempt_, std::memory_order_release);
  mine.open.store(1, std::memory_order_release);
  tell_board(comm_, kind_, nullptr);
}

// The first round is for all who are in an attempt of this number, whomever they exclude: so a difference is
// found. One that excludes this rank is in another exchange, and comes to this one later.
void SurvivorExchange::agree_on(const std::vector<int>& excluded) {
  const ExcludedList list(excluded);
  choose_attempt();
  publish(list.text());
  std::vector<ExcludedList> lists(ranks_.size());
  wait([&] {
    for (const int r : ranks_) {
      const uint64_t theirs = board(r).attempt.load(std::memory_order_acquire);
      if (theirs > attempt_ && board(r).open.load(std::memory_order_acquire)) {
        attempt_ = theirs;
        publish(list.text());
        return false;
      }
    }
    std::string text;
    size_t left = 0;
    for (size_t i = 0; i < ranks_.size(); ++i) {
      awaited_ = ranks_[i];
      if (!read(awaited_, stamp_, &text, &left)) return false;
      lists[i] = ExcludedList(text);
      if (lists[i].has(comm_.rank)) return false;
    }
    return true;
  });
  phase_ = exchanging;
  const auto other = std::find_if(lists.begin(), lists.end(),
                                  [&](const ExcludedList& l) { return l.text() != list.text(); });
  if (other == lists.end()) return;
  finish();
  fail(Result::invalid_usage,
       "communicator {}: ranks exclude different ranks in {}: {} excludes {}, {} excludes {}. All must give "
       "the same",
       comm_.name, name_of(step_), comm_.rank_name(comm_.rank), list.describe(),
       comm_.rank_name(ranks_[static_cast<size_t>(other - lists.begin())]), other->describe());
}

void SurvivorExchange::look(int awaited, std::chrono::nanoseconds waited) {
  if (phase_ == passing) {
    if (!absence(awaited).empty()) passed_.insert(awaited);
    return;
  }
  if (phase_ == exchanging && all_there()) return;
  if (tripped()) comm_.throw_error();
  const Board& theirs = board(awaited);
  const bool gave_up = phase_ == exchanging && (!theirs.open.load(std::memory_order_acquire) ||
                                                theirs.attempt.load(std::memory_order_acquire) != attempt_);
  if (gave_up && !all_there())
    fail(Result::remote_error,
         "communicator {}: {} gave up {} while {} waits for it. Look for its error, and try again",
         comm_.name, comm_.rank_name(awaited), name_of(step_), comm_.rank_name(comm_.rank));
  if (const std::string what = absence(awaited); !what.empty() && !(phase_ == exchanging && all_there()))
    fail(Result::remote_error, "communicator {}: {} {} while {} waits for it in {}. Exclude it, too",
         comm_.name, comm_.rank_name(awaited), what, comm_.rank_name(comm_.rank), name_of(step_));
  if (deadline_.expired()) fail(Result::timeout, "{}", timeout_text());
  warn_when_late(comm_, name_of(step_), ", waiting for " + describe_missing(), waited, &next_warning_);
}

void SurvivorExchange::await_passed(Deadline deadline) {
  phase_ = passing;
  wait([&] {
    for (const int r : ranks_) {
      const Board& theirs = board(r);
      const bool passed = theirs.notes[stamp_ & 1].stamp.load(std::memory_order_acquire) == stamp_ ||
                          theirs.attempt.load(std::memory_order_acquire) != attempt_ ||
                          !theirs.open.load(std::memory_order_acquire);
      if (passed || passed_.contains(r)) continue;
      awaited_ = r;
      return deadline.expired();
    }
    return true;
  });
}

void SurvivorExchange::finish() {
  if (alone()) return;
  put(next_stamp(), {});
  await_passed(deadline_.within(std::chrono::seconds(5)));
}

}  // namespace muster
