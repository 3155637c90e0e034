// The C++ interface end to end: every collective, type and form, ranks as threads and as processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <random>
#include <thread>
#include <vector>

#include "muster/muster.h"
#include "support/ranks.h"

namespace muster {
namespace {

using test::run_process_ranks;
using test::run_threads;

constexpr size_t kGuard = 64;

// Small whole numbers: sums of up to 16 of them are exact in every type, in any order.
double value(int rank, size_t i) { return static_cast<double>((static_cast<size_t>(rank) * 5 + i * 3 + i / 7) % 4); }

template <class T>
struct Typed;
template <>
struct Typed<float> {
  static constexpr DataType type = DataType::float32;
};
template <>
struct Typed<double> {
  static constexpr DataType type = DataType::float64;
};
template <>
struct Typed<int8_t> {
  static constexpr DataType type = DataType::int8;
};
template <>
struct Typed<uint64_t> {
  static constexpr DataType type = DataType::uint64;
};

// User memory with guards on both sides, from malloc or from mem_alloc, shifted by `shift` elements.
template <class T>
class Buffer {
 public:
  Buffer(size_t n, bool alloc, size_t shift = 0) : n_(n), bytes_((n + 2 * kGuard + shift) * sizeof(T)), alloc_(alloc) {
    base_ = static_cast<T*>(alloc ? mem_alloc(bytes_) : std::malloc(bytes_));
    std::memset(base_, 0x5a, bytes_);
    data_ = base_ + kGuard + shift;
  }
  ~Buffer() {
    if (alloc_)
      mem_free(base_);
    else
      std::free(base_);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  T* data() { return data_; }
  T& operator[](size_t i) { return data_[i]; }
  size_t size() const { return n_; }
  bool guards_intact() const {
    const auto* b = reinterpret_cast<const unsigned char*>(base_);
    const auto* begin = reinterpret_cast<const unsigned char*>(data_);
    const auto* end = reinterpret_cast<const unsigned char*>(data_ + n_);
    for (const auto* p = b; p < b + bytes_; ++p)
      if ((p < begin || p >= end) && *p != 0x5a) return false;
    return true;
  }

 private:
  size_t n_, bytes_;
  bool alloc_;
  T* base_;
  T* data_;
};

struct Form {
  bool alloc = false, in_place = false;
  size_t shift = 0;
};

template <class T>
void all_collectives(Communicator& comm, size_t count, const Form& form) {
  const int n = comm.size(), me = comm.rank();
  const auto nn = static_cast<size_t>(n), mine = static_cast<size_t>(me);
  constexpr DataType type = Typed<T>::type;
  const auto at = [](int r, size_t i) { return static_cast<T>(value(r, i)); };
  const auto sum = [&](size_t i) {
    T s{};
    for (int r = 0; r < n; ++r) s = static_cast<T>(s + at(r, i));
    return s;
  };
  SCOPED_TRACE(testing::Message() << "count " << count << (form.alloc ? ", mem_alloc" : "") << (form.in_place ? ", in place" : "") << ", shift "
                                  << form.shift << ", rank " << me << " of " << n);

  const auto check = [&](const char* what, size_t in, size_t out, auto fill, auto call, auto expect, bool receives) {
    Buffer<T> a(in * count, form.alloc, form.shift), b(out * count, form.alloc, form.shift / 2);
    T* send = a.data();
    T* recv = b.data();
    if (form.in_place) {
      if (in > out)
        recv = send + mine * count;
      else
        send = out > in ? recv + mine * count : recv;
    }
    for (size_t i = 0; i < in * count; ++i) send[i] = fill(i);
    call(send, recv);
    for (size_t i = 0; receives && i < out * count; ++i) ASSERT_EQ(recv[i], expect(i)) << what << ": element " << i;
    for (size_t i = 0; !form.in_place && i < in * count; ++i) ASSERT_EQ(a[i], fill(i)) << what << ": the send buffer changed at " << i;
    ASSERT_TRUE(a.guards_intact() && b.guards_intact()) << what << ": written outside a buffer";
  };
  const auto own = [&](size_t i) { return at(me, i); };
  check("all_reduce", 1, 1, own, [&](T* s, T* r) { comm.all_reduce(s, r, count, type, RedOp::sum); }, sum, true);
  check("reduce_scatter", nn, 1, own, [&](T* s, T* r) { comm.reduce_scatter(s, r, count, type, RedOp::sum); },
        [&](size_t i) { return sum(mine * count + i); }, true);
  check("all_gather", 1, nn, own, [&](T* s, T* r) { comm.all_gather(s, r, count, type); },
        [&](size_t i) { return at(static_cast<int>(i / count), i % count); }, true);
  check("all_to_all", nn, nn, own, [&](T* s, T* r) { comm.all_to_all(s, r, count, type); },
        [&](size_t i) { return at(static_cast<int>(i / count), mine * count + i % count); }, true);
  for (int root = 0; root < n; ++root) {
    const bool here = root == me;
    check("broadcast", 1, 1, own, [&](T* s, T* r) { comm.broadcast(s, r, count, type, root); }, [&](size_t i) { return at(root, i); }, true);
    check("reduce", 1, 1, own, [&](T* s, T* r) { comm.reduce(s, r, count, type, RedOp::sum, root); }, sum, here);
    if (form.in_place && !here) {
      // Only the root's buffers overlap; elsewhere the large one isn't used.
      std::vector<T> small(count);
      for (size_t i = 0; i < count; ++i) small[i] = own(i);
      comm.gather(small.data(), nullptr, count, type, root);
      comm.scatter(nullptr, small.data(), count, type, root);
      for (size_t i = 0; i < count; ++i) ASSERT_EQ(small[i], at(root, mine * count + i)) << "scatter: element " << i;
      continue;
    }
    check("gather", 1, nn, own, [&](T* s, T* r) { comm.gather(s, r, count, type, root); },
          [&](size_t i) { return at(static_cast<int>(i / count), i % count); }, here);
    check("scatter", nn, 1, own, [&](T* s, T* r) { comm.scatter(s, r, count, type, root); },
          [&](size_t i) { return at(root, mine * count + i); }, true);
  }
}

void everything(Communicator& comm) {
  for (const size_t count : {size_t{1}, size_t{3}, size_t{17}, size_t{1000}, size_t{4099}, size_t{50001}})
    for (const bool alloc : {false, true})
      for (const bool in_place : {false, true}) {
        all_collectives<float>(comm, count, {alloc, in_place, count % 3});
        if (testing::Test::HasFatalFailure()) return;
      }
  for (const size_t shift : {size_t{1}, size_t{3}, size_t{7}, size_t{15}}) all_collectives<int8_t>(comm, 4097, {false, false, shift});
  all_collectives<double>(comm, 777, {true, false, 1});
  all_collectives<uint64_t>(comm, 777, {false, true, 1});
}

TEST(Communicator, OneRank) {
  Communicator comm = std::move(Communicator::init_all(1)[0]);
  everything(comm);
  std::vector<float> a{1, 2, 3}, b(3);
  group_start();
  comm.send(a.data(), 3, DataType::float32, 0);
  comm.recv(b.data(), 3, DataType::float32, 0);
  group_end();
  EXPECT_EQ(a, b);
  comm.barrier();
  comm.destroy();
}

TEST(Communicator, TwoThreads) { run_threads(2, [](Communicator& c, int) { everything(c); }); }
TEST(Communicator, FiveThreads) { run_threads(5, [](Communicator& c, int) { everything(c); }); }
TEST(Communicator, TwoProcesses) { run_process_ranks(2, [](Communicator& c, int) { everything(c); }); }
TEST(Communicator, FourProcesses) { run_process_ranks(4, [](Communicator& c, int) { everything(c); }); }

TEST(Communicator, ZeroCountsWithNullBuffers) {
  run_threads(4, [](Communicator& c, int rank) {
    for (int i = 0; i < 3; ++i) {
      c.all_gather(nullptr, nullptr, 0, DataType::float32);
      c.reduce_scatter(nullptr, nullptr, 0, DataType::float32, RedOp::sum);
      c.all_reduce(nullptr, nullptr, 0, DataType::int8, RedOp::max);
    }
    float one = static_cast<float>(rank), all = 0;
    c.all_reduce(&one, &all, 1, DataType::float32, RedOp::sum);
    EXPECT_EQ(all, 6);
  });
}

TEST(Communicator, BackToBackCallsOfDifferentSizesStayApart) {
  run_process_ranks(3, [](Communicator& c, int rank) {
    std::mt19937 random(7);  // the same on all ranks
    std::vector<int32_t> a(70000), b(70000);
    for (int call = 0; call < 3000; ++call) {
      const size_t count = 1 + random() % (call % 50 == 0 ? 70000 : 600);
      const int root = static_cast<int>(random() % 3);
      for (size_t i = 0; i < count; i += 1 + count / 50) a[i] = static_cast<int32_t>(call * 31 + rank * 7 + static_cast<int>(i));
      if (call % 3 == 0)
        c.broadcast(a.data(), b.data(), count, DataType::int32, root);
      else
        c.all_reduce(a.data(), b.data(), count, DataType::int32, RedOp::max);
      const int from = call % 3 == 0 ? root : 2;
      for (size_t i = 0; i < count; i += 1 + count / 50)
        ASSERT_EQ(b[i], call * 31 + from * 7 + static_cast<int>(i)) << "call " << call << " element " << i;
    }
  });
}

TEST(Group, ManyCommunicatorsDrivenByOneThread) {
  auto comms = Communicator::init_all(4);
  const size_t count = 30000;
  std::vector<std::vector<float>> in(4, std::vector<float>(count)), out(4, std::vector<float>(count));
  for (int r = 0; r < 4; ++r) in[static_cast<size_t>(r)].assign(count, static_cast<float>(r + 1));
  for (int repeat = 0; repeat < 3; ++repeat) {
    group_start();
    for (size_t r = 0; r < 4; ++r) {
      group_start();
      comms[r].all_reduce(in[r].data(), out[r].data(), count, DataType::float32, RedOp::sum);
      group_end();
    }
    group_end();
    for (auto& o : out) ASSERT_THAT(o, testing::Each(10.f));
  }
  // Several collectives of each communicator in one group run in call order.
  group_start();
  for (size_t r = 0; r < 4; ++r) {
    comms[r].all_reduce(in[r].data(), out[r].data(), count, DataType::float32, RedOp::sum);
    comms[r].all_reduce(out[r].data(), out[r].data(), count, DataType::float32, RedOp::max);
    comms[r].broadcast(out[r].data(), in[r].data(), count, DataType::float32, 3);
  }
  group_end();
  for (auto& i : in) ASSERT_THAT(i, testing::Each(10.f));
}

TEST(Group, InitInsideAGroup) {
  const UniqueId id = make_unique_id();
  std::vector<Communicator> comms(3);
  group_start();
  for (int r = 0; r < 3; ++r) comms[static_cast<size_t>(r)] = Communicator::init(3, r, id);
  group_end();
  std::vector<int> in{1, 2, 4}, out(3);
  group_start();
  for (size_t r = 0; r < 3; ++r) comms[r].all_reduce(&in[r], &out[r], 1, DataType::int32, RedOp::sum);
  group_end();
  EXPECT_THAT(out, testing::Each(7));
}

// Any set of sends and receives in one group completes, with several messages between a pair in call order.
TEST(Group, RandomSendReceiveGraphs) {
  run_process_ranks(5, [](Communicator& c, int rank) {
    std::mt19937 random(11);
    for (int round = 0; round < 60; ++round) {
      struct Edge {
        int from, to;
        size_t count;
      };
      std::vector<Edge> edges;
      for (unsigned e = 0, n = random() % 40; e < n; ++e)
        edges.push_back({static_cast<int>(random() % 5), static_cast<int>(random() % 5), random() % 20 == 0 ? random() % 300000 : random() % 300});
      std::vector<std::vector<int32_t>> memory(edges.size());
      // Each rank's own call order, but messages of a pair in order.
      std::vector<size_t> order;
      group_start();
      for (int pass = 0; pass < 2; ++pass)
        for (size_t e = 0; e < edges.size(); ++e) {
          const Edge& x = edges[e];
          const bool first = (rank + round) % 2 == pass;
          if (x.from == rank && first) {
            if (memory[e].empty()) memory[e].resize(x.count + 1);
            std::vector<int32_t>& m = memory[e];
            if (x.to != rank)
              for (size_t i = 0; i < x.count; ++i) m[i] = static_cast<int32_t>(e * 1000 + i);
            c.send(m.data(), x.count, DataType::int32, x.to);
          }
          if (x.to == rank && !first && x.from != rank) {
            memory[e].resize(x.count + 1);
            c.recv(memory[e].data(), x.count, DataType::int32, x.from);
          }
        }
      std::vector<std::vector<int32_t>> own;
      for (size_t e = 0; e < edges.size(); ++e)
        if (edges[e].from == rank && edges[e].to == rank) {
          for (size_t i = 0; i < edges[e].count; ++i) memory[e][i] = static_cast<int32_t>(e * 1000 + i);
          own.emplace_back(edges[e].count + 1);
          c.recv(own.back().data(), edges[e].count, DataType::int32, rank);
        }
      group_end();
      size_t k = 0;
      for (size_t e = 0; e < edges.size(); ++e) {
        if (edges[e].to != rank) continue;
        const auto& m = edges[e].from == rank ? own[k++] : memory[e];
        for (size_t i = 0; i < edges[e].count; ++i) ASSERT_EQ(m[i], static_cast<int32_t>(e * 1000 + i)) << "round " << round << " message " << e;
      }
    }
  });
}

TEST(Group, CollectivesAndMessagesTogether) {
  run_threads(3, [](Communicator& c, int rank) {
    const int next = (rank + 1) % 3, prev = (rank + 2) % 3;
    std::vector<int64_t> a(100000, rank), b(100000), sum(100000);
    group_start();
    c.recv(b.data(), b.size(), DataType::int64, prev);
    c.all_reduce(a.data(), sum.data(), a.size(), DataType::int64, RedOp::sum);
    c.send(a.data(), a.size(), DataType::int64, next);
    group_end();
    EXPECT_THAT(b, testing::Each(prev));
    EXPECT_THAT(sum, testing::Each(3));
  });
}

TEST(Group, TwentyThousandMessages) {
  run_threads(2, [](Communicator& c, int rank) {
    constexpr size_t n = 20000;
    std::vector<int32_t> a(n), b(n, -1);
    for (size_t i = 0; i < n; ++i) a[i] = static_cast<int32_t>(i) + rank;
    group_start();
    for (size_t i = 0; i < n; ++i) {
      c.send(&a[i], 1, DataType::int32, 1 - rank);
      c.recv(&b[i], 1, DataType::int32, 1 - rank);
    }
    group_end();
    for (size_t i = 0; i < n; ++i) ASSERT_EQ(b[i], static_cast<int32_t>(i) + 1 - rank);
  });
}

TEST(Stream, CallsRunInOrderAndOverlapWithTheCaller) {
  run_process_ranks(2, [](Communicator& c, int rank) {
    HostStream stream;
    std::vector<float> a(10000, static_cast<float>(rank + 1)), b(10000);
    c.all_reduce(a.data(), b.data(), a.size(), DataType::float32, RedOp::sum, &stream);
    c.all_reduce(b.data(), b.data(), a.size(), DataType::float32, RedOp::sum, &stream);
    c.all_reduce(b.data(), a.data(), a.size(), DataType::float32, RedOp::max, &stream);
    stream.synchronize();
    EXPECT_TRUE(stream.idle());
    EXPECT_THAT(a, testing::Each(6.f));
  });
}

TEST(Stream, TwoStreamsOfOneCommunicatorKeepCallOrder) {
  run_threads(2, [](Communicator& c, int rank) {
    HostStream s1, s2;
    std::vector<int> a(5000, rank), b(5000);
    for (int i = 0; i < 20; ++i) {
      c.all_reduce(a.data(), b.data(), a.size(), DataType::int32, RedOp::sum, i % 2 ? &s1 : &s2);
      c.all_gather(a.data(), b.data(), a.size() / 2, DataType::int32, i % 3 ? &s2 : &s1);
    }
    c.all_reduce(a.data(), b.data(), a.size(), DataType::int32, RedOp::sum);  // on this thread, after them
    EXPECT_THAT(b, testing::Each(1));
    s1.synchronize();
    s2.synchronize();
  });
}

// Two groups used in different order on different ranks complete when each has a stream of its own.
TEST(Stream, CommunicatorsInCrossedOrder) {
  auto a = Communicator::init_all(2), b = Communicator::init_all(2);
  std::vector<std::thread> threads;
  for (size_t r = 0; r < 2; ++r)
    threads.emplace_back([&, r] {
      HostStream sa, sb;
      std::vector<int> x(1000, 1), y(1000), z(1000);
      const auto first = [&] { a[r].all_reduce(x.data(), y.data(), x.size(), DataType::int32, RedOp::sum, &sa); };
      const auto second = [&] { b[r].all_reduce(x.data(), z.data(), x.size(), DataType::int32, RedOp::sum, &sb); };
      if (r == 0) {
        first();
        second();
        sa.synchronize();
        sb.synchronize();
      } else {
        second();
        first();
        sb.synchronize();
        sa.synchronize();
      }
      EXPECT_THAT(y, testing::Each(2));
      EXPECT_THAT(z, testing::Each(2));
    });
  for (auto& t : threads) t.join();
}

// A profiler's signals at every thread of a rank, so that system calls end early: while it waits for a late rank, sleeps,
// makes a communicator, and while a stream runs.
TEST(Signals, ProfilerStormDuringCalls) {
  run_process_ranks(3, [](Communicator& c, int rank) {
    struct sigaction action {};
    action.sa_handler = [](int) {};  // no SA_RESTART
    sigaction(SIGPROF, &action, nullptr);
    std::atomic<bool> stop{false};
    std::thread storm([&] {
      const auto self = static_cast<pid_t>(syscall(SYS_gettid));
      while (!stop) {
        for (const auto& task : std::filesystem::directory_iterator("/proc/self/task"))
          if (const pid_t tid = std::atoi(task.path().filename().c_str()); tid != self) syscall(SYS_tgkill, getpid(), tid, SIGPROF);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    });
    HostStream stream;
    for (int round = 0; round < 6; ++round) {
      if (rank == round % 3) std::this_thread::sleep_for(std::chrono::milliseconds(60));  // the others go to sleep
      for (const size_t count : {size_t{2}, size_t{100'000}}) {
        std::vector<int> x(count, rank + 1), y(count), z(count);
        c.all_reduce(x.data(), y.data(), count, DataType::int32, RedOp::sum);
        EXPECT_THAT(y, testing::Each(6));
        c.all_reduce(y.data(), z.data(), count, DataType::int32, RedOp::sum, &stream);
        stream.synchronize();
        EXPECT_THAT(z, testing::Each(18));
      }
      int sent = 10 * rank + round, got = -1;
      group_start();
      c.send(&sent, 1, DataType::int32, (rank + 1) % 3);
      c.recv(&got, 1, DataType::int32, (rank + 2) % 3);
      group_end();
      EXPECT_EQ(got, 10 * ((rank + 2) % 3) + round);
      Communicator child = c.split(0, rank);
      int one = 1, sum = 0;
      child.all_reduce(&one, &sum, 1, DataType::int32, RedOp::sum);
      EXPECT_EQ(sum, 3);
      child.destroy();
    }
    stop = true;
    storm.join();
  });
}

TEST(PreMulSum, EachRankHasItsOwnFactor) {
  run_threads(3, [](Communicator& c, int rank) {
    for (const size_t count : {size_t{4}, size_t{30000}}) {
      const auto factor = static_cast<float>(rank + 1);
      std::vector<float> a(count, 2.f), b(count);
      c.all_reduce(a.data(), b.data(), count, DataType::float32, ReduceOp::pre_mul_sum(&factor, DataType::float32));
      EXPECT_THAT(b, testing::Each(12.f));
      std::vector<float> big(3 * count, 2.f), part(count);
      c.reduce_scatter(big.data(), part.data(), count, DataType::float32, ReduceOp::pre_mul_sum(&factor, DataType::float32));
      EXPECT_THAT(part, testing::Each(12.f));
    }
  });
}

TEST(Average, IntegersTruncateTowardZeroWhateverTheCount) {
  run_threads(3, [](Communicator& c, int rank) {
    for (const size_t count : {size_t{7}, size_t{20000}}) {
      const int32_t up[] = {1, 2, 2};
      std::vector<int32_t> a(count, up[rank]), b(count);
      c.all_reduce(a.data(), b.data(), count, DataType::int32, RedOp::avg);
      EXPECT_THAT(b, testing::Each(1));
      a.assign(count, -up[rank]);
      c.all_reduce(a.data(), b.data(), count, DataType::int32, RedOp::avg);
      EXPECT_THAT(b, testing::Each(-1));
    }
  });
}

}  // namespace
}  // namespace muster
