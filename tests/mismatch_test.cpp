// Ranks whose calls differ: every rank that is in a call gets an error with both calls spelled out, nothing is written
// outside a buffer, and nobody waits for ever.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "muster/muster.h"
#include "support/outcome.h"
#include "support/ranks.h"

namespace muster {
namespace {

using test::Outcome;
using test::outcome_of;
using test::run_process_ranks;
using test::run_threads;
using test::Variable;
using testing::AllOf;
using testing::AnyOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using namespace std::chrono_literals;

// Memory of `bytes` between guards.
class Guarded {
 public:
  explicit Guarded(size_t bytes, unsigned char fill = 0) : bytes_(bytes), memory_(bytes + 2 * kGuard, 0x5a) {
    std::memset(data(), fill, bytes);
  }
  void* data() { return memory_.data() + kGuard; }
  bool intact() const {
    for (size_t i = 0; i < kGuard; ++i)
      if (memory_[i] != 0x5a || memory_[kGuard + bytes_ + i] != 0x5a) return false;
    return true;
  }

 private:
  static constexpr size_t kGuard = 4096;
  size_t bytes_;
  std::vector<unsigned char> memory_;
};

// A rank's call on buffers that are exactly as large as it needs.
struct Made {
  std::string text;  // as messages spell it
  std::function<void(Communicator&, void* send, void* recv)> run;
  size_t send_bytes, recv_bytes;
};

Made all_reduce(size_t count, DataType type, RedOp op = RedOp::sum) {
  const size_t bytes = count * size_of(type);
  return {"all_reduce\\(count " + std::to_string(count) + ", " + name_of(type) + ", " + name_of(op) + "\\)",
          [=](Communicator& c, void* s, void* r) { c.all_reduce(s, r, count, type, op); }, bytes, bytes};
}
Made broadcast(size_t count, DataType type, int root) {
  const size_t bytes = count * size_of(type);
  return {"broadcast\\(count " + std::to_string(count) + ", " + name_of(type) + ", root " + std::to_string(root) + "\\)",
          [=](Communicator& c, void* s, void* r) { c.broadcast(s, r, count, type, root); }, bytes, bytes};
}
Made reduce(size_t count, DataType type, int root) {
  const size_t bytes = count * size_of(type);
  return {"reduce\\(count " + std::to_string(count) + ", " + name_of(type) + ", sum, root " + std::to_string(root) + "\\)",
          [=](Communicator& c, void* s, void* r) { c.reduce(s, r, count, type, RedOp::sum, root); }, bytes, bytes};
}
Made all_gather(size_t count, DataType type, int nranks) {
  const size_t bytes = count * size_of(type);
  return {"all_gather\\(count " + std::to_string(count) + ", " + name_of(type) + "\\)",
          [=](Communicator& c, void* s, void* r) { c.all_gather(s, r, count, type); }, bytes,
          bytes * static_cast<size_t>(nranks)};
}

std::string who(int rank) { return "rank " + std::to_string(rank) + " \\(host [^ ,]+, pid [0-9]+\\)"; }

// After an error: it is everybody's, it stays, and leaving works.
void expect_broken(Communicator& c, const std::string& text) {
  std::string message;
  for (int i = 0; i < 1000 && c.async_error() == Result::success; ++i) std::this_thread::sleep_for(10ms);
  EXPECT_EQ(c.async_error(&message), Result::invalid_usage);
  EXPECT_EQ(message, text.empty() ? message : text);
  float x = 1, y = 0;
  const Outcome later = outcome_of([&] { c.all_reduce(&x, &y, 1, DataType::float32, RedOp::sum); });
  EXPECT_EQ(later.code, Result::invalid_usage) << later;
  EXPECT_EQ(later.text, message);
  EXPECT_EQ(outcome_of([&] { c.barrier(); }).code, Result::invalid_usage);
}

// One rank makes `odd`, the others `common`. `may_finish`: ranks whose part needs nothing from the odd one are through
// before it is noticed; they learn in their next calls.
void expect_mismatch(Communicator& c, int rank, int odd_rank, const Made& odd, const Made& common, bool may_finish = false) {
  const Made& mine = rank == odd_rank ? odd : common;
  for (int before = 0; before < 3; ++before) c.barrier();
  Guarded send(mine.send_bytes, 1), recv(mine.recv_bytes);
  Outcome o = outcome_of([&] { mine.run(c, send.data(), recv.data()); });
  for (int i = 0; may_finish && i < 3 && o.code == Result::success; ++i) o = outcome_of([&] { c.barrier(); });
  EXPECT_TRUE(send.intact() && recv.intact()) << "written outside a buffer";
  SCOPED_TRACE(testing::Message() << "rank " << rank << ": " << o);
  EXPECT_EQ(o.code, Result::invalid_usage);
  EXPECT_THAT(o.text, HasSubstr("calls don't match"));
  EXPECT_THAT(o.text, ContainsRegex(who(odd_rank) + " called " + odd.text + " as call 4"));
  EXPECT_THAT(o.text, ContainsRegex("rank [0-9]+ \\(host [^ ,]+, pid [0-9]+\\) called " + common.text + " as call 4"));
  EXPECT_THAT(o.text, HasSubstr("Every rank must make the same calls"));
  expect_broken(c, o.text);
}

// The same difference between threads and between processes, by each rank in turn.
void everywhere(int n, const Made& odd, const Made& common, bool may_finish = false) {
  for (const int odd_rank : {0, n - 1})
    run_threads(n, [&](Communicator& c, int rank) { expect_mismatch(c, rank, odd_rank, odd, common, may_finish); });
  run_process_ranks(n, [&](Communicator& c, int rank) { expect_mismatch(c, rank, 1, odd, common, may_finish); });
}

constexpr DataType kFloat = DataType::float32, kInt = DataType::int32, kLong = DataType::int64;

TEST(Mismatch, CountsThatDifferLittle) { everywhere(8, all_reduce(409600, kFloat), all_reduce(409598, kFloat)); }
TEST(Mismatch, CountsThatDifferMuch) { everywhere(3, all_reduce(409600, kFloat), all_reduce(3276800, kFloat)); }
TEST(Mismatch, CountsOnBothSidesOfTheWindowThreshold) { everywhere(2, all_reduce(7, kFloat), all_reduce(2000000, kFloat)); }
TEST(Mismatch, CountsOfAllGather) { everywhere(4, all_gather(100 * 2560, kFloat, 4), all_gather(200 * 2560, kFloat, 4)); }
TEST(Mismatch, TypesOfDifferentWidth) { everywhere(3, all_reduce(1, DataType::bfloat16), all_reduce(1, kFloat)); }
TEST(Mismatch, TypesOfTheSameWidth) { everywhere(3, all_reduce(1, kInt), all_reduce(1, kFloat)); }
TEST(Mismatch, TypesOfTheSameWidthLarge) { everywhere(2, all_reduce(100000, kInt), all_reduce(100000, kFloat)); }
TEST(Mismatch, FloatAgainstInt64) { everywhere(2, all_reduce(1024, kFloat), all_reduce(1024, kLong)); }
TEST(Mismatch, Operations) { everywhere(3, all_reduce(1000, kFloat, RedOp::max), all_reduce(1000, kFloat, RedOp::avg)); }
TEST(Mismatch, Collectives) { everywhere(4, broadcast(1, kLong, 0), all_reduce(25, kFloat), true); }
TEST(Mismatch, CollectivesLarge) { everywhere(2, all_gather(50000, kFloat, 2), all_reduce(50000, kFloat)); }

// With swapped roots nobody sends: what ranks have published is compared.
TEST(Mismatch, SwappedRootsOfBroadcast) {
  for (const size_t count : {size_t{5}, size_t{200000}}) {
    const auto body = [&](Communicator& c, int rank) {
      Guarded send(count * 4, 1), recv(count * 4);
      const Outcome o = outcome_of([&] { c.broadcast(send.data(), recv.data(), count, kFloat, 1 - rank); });
      EXPECT_EQ(o.code, Result::invalid_usage) << o;
      for (const int r : {0, 1})
        EXPECT_THAT(o.text, ContainsRegex(who(r) + " called " + broadcast(count, kFloat, 1 - r).text + " as call 1"));
      EXPECT_TRUE(send.intact() && recv.intact());
      expect_broken(c, o.text);
    };
    run_threads(2, body);
    run_process_ranks(2, body);
  }
}

// With these nobody waits: the difference shows in the call after.
TEST(Mismatch, SwappedRootsOfReduceShowInTheNextCall) {
  const auto body = [&](Communicator& c, int rank) {
    float x = 1, y = 0;
    const Outcome first = outcome_of([&] { c.reduce(&x, &y, 1, kFloat, RedOp::sum, 1 - rank); });
    const Outcome second = outcome_of([&] { c.all_reduce(&x, &y, 1, kFloat, RedOp::sum); });
    EXPECT_EQ(second.code, Result::invalid_usage) << first << " / " << second;
    EXPECT_THAT(second.text, ContainsRegex("called reduce\\(count 1, float32, sum, root [01]\\) as call 1.*called reduce\\(count 1, float32, sum, root [01]\\) as call 1"));
    expect_broken(c, second.text);
  };
  run_threads(2, body);
  run_process_ranks(2, body);
}

TEST(Mismatch, RootsOfReduce) { everywhere(3, reduce(1000, kFloat, 2), reduce(1000, kFloat, 0), true); }
TEST(Mismatch, RootsOfBroadcast) { everywhere(4, broadcast(1000, kFloat, 3), broadcast(1000, kFloat, 2), true); }

TEST(Mismatch, NothingOnOneRank) { everywhere(4, all_reduce(0, kFloat), all_reduce(1000, kFloat), true); }
TEST(Mismatch, SomethingOnOneRank) { everywhere(4, all_gather(1000, kFloat, 4), all_gather(0, kFloat, 4), true); }

// A rank that leaves out a collective of equal ones is found at the end, by name.
TEST(Mismatch, OneRankSkipsACall) {
  const Variable warn("MUSTER_STALL_WARN", "0.2"), limit("MUSTER_TIMEOUT", "1.5");
  testing::internal::CaptureStderr();
  run_threads(4, [](Communicator& c, int rank) {
    std::vector<float> x(256, 1), y(256);
    Outcome o;
    for (int i = 0; i < 1000 && o.code == Result::success; ++i) {
      if (rank == 3 && i == 500) continue;
      o = outcome_of([&] { c.all_reduce(x.data(), y.data(), x.size(), kFloat, RedOp::sum); });
    }
    if (rank == 3) {
      EXPECT_EQ(o.code, Result::success) << o;
      return std::this_thread::sleep_for(2500ms);  // busy elsewhere
    }
    EXPECT_EQ(o.code, Result::timeout) << o;
    EXPECT_THAT(o.text, ContainsRegex("timed out after .* in call 1000, all_reduce\\(count 256, float32, sum\\), waiting for " + who(3) +
                                      ", last in call 999"));
    EXPECT_THAT(o.text, HasSubstr("MUSTER_TIMEOUT"));
  });
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, ContainsRegex("rank [012] has waited 0\\.[0-9]+ s in call 1000, .* waiting for " + who(3) + ", last in call 999"));
  EXPECT_THAT(log, testing::Not(ContainsRegex("waiting for " + who(0)))) << "the rank behind is to be named, not those ahead";
}

// A rank with a call too many is ahead and waits for all the others.
TEST(Mismatch, OneRankAddsACall) {
  const auto body = [](Communicator& c, int rank) {
    float x = 1, y = 0;
    for (int i = 0; i < 20; ++i) c.all_reduce(&x, &y, 1, kFloat, RedOp::sum);
    if (rank != 2) {
      for (int i = 0; i < 300 && c.async_error() == Result::success; ++i) std::this_thread::sleep_for(10ms);
      EXPECT_EQ(c.async_error(), Result::timeout);
      return;
    }
    const Outcome o = outcome_of([&] { c.all_reduce(&x, &y, 1, kFloat, RedOp::sum); });
    EXPECT_EQ(o.code, Result::timeout) << o;
    EXPECT_THAT(o.text, ContainsRegex("waiting for " + who(0) + ", last in call 20; " + who(1) + ", last in call 20"));
  };
  const Variable limit("MUSTER_TIMEOUT", "0.5");
  run_threads(3, body);
  run_process_ranks(3, body);
}

// Blocking calls on two communicators, which half of the ranks make in the other order, wait for each other for ever: after
// the time limit each rank says which call it is in and who isn't there.
TEST(Mismatch, TwoCommunicatorsInCrossedOrder) {
  const Variable limit("MUSTER_TIMEOUT", "1");
  auto a = Communicator::init_all(4), b = Communicator::init_all(4);
  std::vector<std::thread> threads;
  for (size_t r = 0; r < 4; ++r)
    threads.emplace_back([&, r] {
      std::vector<int> x(4 * 4000, 1), y(x.size());
      const Outcome o = outcome_of([&] {
        if (r < 2)
          a[r].all_to_all(x.data(), y.data(), 4000, DataType::int32);
        else
          b[r].all_reduce(x.data(), y.data(), 4000, DataType::int32, RedOp::sum);
      });
      EXPECT_EQ(o.code, Result::timeout) << o;
      const std::string late = r < 2 ? who(2) + ", last in call 0; " + who(3) : who(0) + ", last in call 0; " + who(1);
      const std::string name = r < 2 ? "all_to_all\\(count 4000, int32\\)" : "all_reduce\\(count 4000, int32, sum\\)";
      EXPECT_THAT(o.text, ContainsRegex("communicator " + (r < 2 ? a : b)[r].name() + ": .* in call 1, " + name + ", waiting for " + late +
                                        ", last in call 0"));
    });
  for (std::thread& t : threads) t.join();
}

// --- point to point ---

void sizes(Communicator& c, int rank, size_t sent, DataType sent_type, size_t received, DataType received_type) {
  Guarded send(sent * size_of(sent_type), 1), recv(received * size_of(received_type));
  const Outcome o = outcome_of([&] {
    if (rank == 0)
      c.send(send.data(), sent, sent_type, 1);
    else
      c.recv(recv.data(), received, received_type, 0);
  });
  EXPECT_TRUE(recv.intact());
  const std::string both = "sent were " + std::to_string(sent) + " elements of " + name_of(sent_type) + ", the receive is for " +
                           std::to_string(received) + " elements of " + name_of(received_type);
  if (rank == 1 || o.code != Result::success) {
    EXPECT_EQ(o.code, Result::invalid_usage) << o;
    EXPECT_THAT(o.text, AllOf(HasSubstr(both), ContainsRegex("from " + who(0) + " to " + who(1))));
  }
  expect_broken(c, "");  // a sender that was through learns it, too
  std::string message;
  c.async_error(&message);
  EXPECT_THAT(message, HasSubstr(both));
}

TEST(Mismatch, MessagesOfDifferentSizes) {
  const DataType bf = DataType::bfloat16;
  const std::tuple<size_t, DataType, size_t, DataType> pairs[] = {
      {6, bf, 8, bf}, {8, bf, 6, bf}, {8, bf, 8, DataType::float16}, {0, bf, 1, bf}, {1, bf, 0, bf}, {300000, bf, 10, bf}, {10, bf, 300000, bf},
      {4, kFloat, 2, kLong}};
  for (const auto& p : pairs) {
    const auto [a, ta, b, tb] = p;
    run_threads(2, [&, a = a, ta = ta, b = b, tb = tb](Communicator& c, int rank) { sizes(c, rank, a, ta, b, tb); });
  }
  run_process_ranks(2, [&](Communicator& c, int rank) { sizes(c, rank, 8, bf, 6, bf); });
  run_process_ranks(2, [&](Communicator& c, int rank) { sizes(c, rank, 10, bf, 3000000, bf); });
}

// What one rank does in a group the other may do one by one.
TEST(Mismatch, GroupedAgainstOneByOne) {
  for (const size_t count : {size_t{1}, size_t{64} << 10, size_t{8} << 20}) {
    const auto body = [&](Communicator& c, int rank) {
      std::vector<uint8_t> out(count, static_cast<uint8_t>(rank + 1)), in(count);
      if (rank % 2 == 0) {
        group_start();
        c.send(out.data(), count, DataType::uint8, rank + 1);
        c.recv(in.data(), count, DataType::uint8, rank + 1);
        group_end();
      } else {
        c.recv(in.data(), count, DataType::uint8, rank - 1);
        c.send(out.data(), count, DataType::uint8, rank - 1);
      }
      EXPECT_THAT(in[0], rank % 2 ? rank : rank + 2);
      EXPECT_EQ(std::count(in.begin(), in.end(), in[0]), static_cast<ptrdiff_t>(count));
      c.barrier();
    };
    run_threads(2, body);
    if (count < 1 << 20) run_threads(8, body);
  }
}

TEST(Mismatch, MessagesToSelf) {
  for (const int n : {1, 4})
    run_threads(n, [](Communicator& c, int rank) {
      std::vector<int> a{1, 2, 3, 4}, b(4), d(4);
      const Outcome alone = outcome_of([&] { c.send(a.data(), 4, kInt, rank); });
      EXPECT_EQ(alone.code, Result::invalid_usage);
      EXPECT_THAT(alone.text, HasSubstr("sends 1 messages to itself and receives 0"));
      EXPECT_EQ(outcome_of([&] { c.recv(b.data(), 4, kInt, rank); }).code, Result::invalid_usage);
      const auto pair = [&](size_t sent, size_t received, DataType type) {
        return outcome_of([&] {
          group_start();
          c.recv(b.data(), received, type, rank);
          c.send(a.data(), sent, kInt, rank);
          group_end();
        });
      };
      EXPECT_EQ(pair(4, 4, kInt).code, Result::success);
      EXPECT_EQ(a, b);
      EXPECT_EQ(pair(4, 3, kInt).code, Result::invalid_usage);
      EXPECT_EQ(pair(3, 4, kInt).code, Result::invalid_usage);
      EXPECT_THAT(pair(4, 4, kFloat).text, AllOf(HasSubstr("int32"), HasSubstr("float32")));
      c.all_reduce(a.data(), d.data(), 4, kInt, RedOp::max);  // the communicator is as good as before
      EXPECT_EQ(a, d);
    });
}

// Mismatches by the hundred: whatever ranks do, each call ends.
TEST(Mismatch, RandomCallsNeverHang) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    std::atomic<int> broken{0};
    run_threads(3, [&](Communicator& c, int rank) {
      unsigned state = seed * 7919 + static_cast<unsigned>(rank) * 104729 + 1;
      const auto next = [&](unsigned n) { return (state = state * 1664525 + 1013904223) / 65536 % n; };
      const size_t counts[] = {0, 1, 100, 5000};
      Outcome o;
      Guarded a(3 * 5000 * 8, 1), b(3 * 5000 * 8);
      for (int call = 0; call < 40 && o.code == Result::success; ++call) {
        const size_t count = counts[next(4)];
        const DataType type = next(2) ? kFloat : kLong;
        const int root = static_cast<int>(next(3));
        o = outcome_of([&] {
          switch (next(6)) {
            case 0: return c.all_reduce(a.data(), b.data(), count, type, RedOp::sum);
            case 1: return c.broadcast(a.data(), b.data(), count, type, root);
            case 2: return c.reduce(a.data(), b.data(), count, type, RedOp::max, root);
            case 3: return c.all_gather(a.data(), b.data(), count, type);
            case 4: return c.reduce_scatter(a.data(), b.data(), count, type, RedOp::sum);
            default: return c.scatter(a.data(), b.data(), count, type, root);
          }
        });
      }
      if (o.code == Result::invalid_usage) ++broken;
      EXPECT_EQ(o.code, Result::invalid_usage) << o;
      EXPECT_TRUE(a.intact() && b.intact());
    });
    EXPECT_EQ(broken, 3) << "seed " << seed;
  }
}

}  // namespace
}  // namespace muster
