// Exchanges of texts between the ranks of a communicator that don't go through its connections: agreements
// about the communicator itself, which must also be possible when its calls have failed.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "comm/life_call.h"
#include "comm/state.h"

namespace muster {

class Exchange {
 public:
  virtual ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  // Ranks that take part, ascending.
  const std::vector<int>& ranks() const { return ranks_; }
  // Their texts, in that order. Throws when one of them fails, or the deadline passes.
  std::vector<std::string> all_gather(std::string_view mine);

 protected:
  Exchange(Communicator::Impl& comm, LifeCall step, BoardKind kind, std::vector<int> ranks,
           Deadline deadline);

  bool alone() const { return ranks_.size() == 1; }
  Board& board(int rank) const { return comm_.board(rank, kind_); }
  virtual uint64_t next_stamp() = 0;
  virtual bool tripped() const = 0;
  // What is looked at while a note isn't there; throws to end the exchange.
  virtual void look(int awaited, std::chrono::nanoseconds waited) = 0;

  void put(uint64_t stamp, std::string_view rest);
  bool read(int rank, uint64_t stamp, std::string* piece, size_t* left) const;
  bool all_there() const;
  // Until done(), which sets awaited_ otherwise.
  template <class Done>
  void wait(Done done);
  // A rank that can't come any more: what became of it; empty: it can.
  std::string absence(int rank) const;
  std::string describe_missing() const;
  std::string timeout_text() const;

  Communicator::Impl& comm_;
  const LifeCall step_;
  const BoardKind kind_;
  const std::vector<int> ranks_;
  const Deadline deadline_;
  uint64_t stamp_ = 0;  // of the round under way
  int awaited_ = -1;
  bool running_ = false;  // this exchange is the communicator's call

  std::chrono::nanoseconds next_warning_{0};

 private:
  class Watch;
};

// All ranks of a healthy communicator: a call like any other, so that it is compared with what others call.
// What goes wrong becomes the communicator's error.
class CollectiveExchange final : public Exchange {
 public:
  CollectiveExchange(Communicator::Impl& comm, LifeCall step, Deadline deadline);
  ~CollectiveExchange() override;

 private:
  uint64_t next_stamp() override { return ++comm_.rounds; }
  bool tripped() const override { return comm_.failed(); }
  void look(int awaited, std::chrono::nanoseconds waited) override;

  uint64_t fingerprint_ = 0;
};

// The ranks that aren't excluded, whatever state the communicator and the others are in. A failure is
// nobody's error, and it may be tried again. Throws invalid_usage, on all of them, when they don't agree on
// who is excluded.
class SurvivorExchange final : public Exchange {
 public:
  // `excluded`: ascending. watches_errors: an error of the communicator ends it, unless that was only
  // revoked.
  SurvivorExchange(Communicator::Impl& comm, LifeCall step, const std::vector<int>& excluded,
                   bool watches_errors, Deadline deadline);
  ~SurvivorExchange() override;
  // After the last all_gather: returns when the others don't need this rank's texts any more.
  void finish();

 private:
  uint64_t next_stamp() override { return attempt_ << 16 | ++round_; }
  bool tripped() const override { return watches_errors_ && comm_.failed() && !comm_.revoked(); }
  void look(int awaited, std::chrono::nanoseconds waited) override;
  void close();
  void choose_attempt();
  void publish(const std::string& list);
  void agree_on(const std::vector<int>& excluded);
  void await_passed(Deadline deadline);

  const bool watches_errors_;
  uint64_t attempt_ = 0, round_ = 0;
  enum { meeting, exchanging, passing } phase_ = meeting;
  std::set<int> passed_;
};

}  // namespace muster
