// Several hosts, emulated on this machine with NCCL_HOSTID and joined by the network: the programs made for them move real data,
// and communicators know where their ranks are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/math.h"
#include "kernels_reference.h"
#include "muster/bytes_sent.h"
#include "muster/muster.h"
#include "support/needs_network.h"
#include "support/outcome.h"
#include "support/processes.h"

namespace muster {
namespace {

using test::run_processes;
using test::Variable;
using testing::HasSubstr;

void on_hosts(const std::vector<int>& host_of, const std::function<void(Communicator&, int rank)>& fn) {
  run_processes(static_cast<int>(host_of.size()), [&](int rank) {
    const Variable host("NCCL_HOSTID", "host" + std::to_string(host_of[static_cast<size_t>(rank)]));
    Communicator c = Communicator::from_environment();
    fn(c, rank);
    c.destroy();
  });
}

uint64_t encode(DataType type, double x) {
  switch (type) {
    case DataType::float64: return std::bit_cast<uint64_t>(x);
    case DataType::float32: return std::bit_cast<uint32_t>(static_cast<float>(x));
    case DataType::float16:
    case DataType::bfloat16:
    case DataType::float8_e4m3:
    case DataType::float8_e5m2: return reference::format(type).encode(static_cast<float>(x));
    default: return static_cast<uint64_t>(static_cast<int64_t>(x));
  }
}

// Memory of `count` elements, each by its number.
template <class F>
std::vector<std::byte> filled(DataType type, size_t count, F value) {
  const size_t size = size_of(type);
  std::vector<std::byte> bytes(count * size);
  std::map<double, uint64_t> codes;  // of the few values that there are
  for (size_t i = 0; i < count; ++i) {
    const double x = value(i);
    const auto [at, first] = codes.try_emplace(x);
    if (first) at->second = encode(type, x);
    std::memcpy(&bytes[i * size], &at->second, size);
  }
  return bytes;
}

// Element i of what rank r has: 0 or 1, so that sums of few ranks are exact in every type.
double value(int r, size_t i) { return static_cast<double>(hash_combine(static_cast<uint64_t>(r) + 1, i) >> 17 & 1); }

struct Sizes {
  DataType type;
  size_t count;
};

void expect_right(Communicator& c, int rank, const Sizes& s) {
  SCOPED_TRACE(testing::Message() << name_of(s.type) << ", count " << s.count);
  const int n = c.size();
  const size_t count = s.count, all = count * static_cast<size_t>(n), mine = static_cast<size_t>(rank) * count;
  const auto sum = [&](size_t i) {
    double x = 0;
    for (int r = 0; r < n; ++r) x += value(r, i);
    return x;
  };
  const auto own = [&](size_t i) { return value(rank, i); };
  const auto poison = [&](size_t elements) { return std::vector<std::byte>(elements * size_of(s.type), std::byte{0x5a}); };
  const std::vector<std::byte> in = filled(s.type, count, own), wide = filled(s.type, all, own);
  std::vector<std::byte> out = poison(count);

  c.all_reduce(in.data(), out.data(), count, s.type, RedOp::sum);
  EXPECT_EQ(out, filled(s.type, count, sum)) << "all_reduce";
  out = in;
  c.all_reduce(out.data(), out.data(), count, s.type, RedOp::sum);
  EXPECT_EQ(out, filled(s.type, count, sum)) << "all_reduce in place";
  if (n == 4 && s.type >= DataType::float16) {
    c.all_reduce(in.data(), out.data(), count, s.type, RedOp::avg);
    EXPECT_EQ(out, filled(s.type, count, [&](size_t i) { return sum(i) / 4; })) << "average";
  }
  c.reduce_scatter(wide.data(), out.data(), count, s.type, RedOp::sum);
  EXPECT_EQ(out, filled(s.type, count, [&](size_t i) { return sum(mine + i); })) << "reduce_scatter";
  for (const int root : {0, n - 1}) {
    out = poison(count);
    c.reduce(in.data(), rank == root ? out.data() : nullptr, count, s.type, RedOp::sum, root);
    EXPECT_EQ(out, rank == root ? filled(s.type, count, sum) : poison(count)) << "reduce to " << root;
    out = poison(count);
    c.broadcast(rank == root ? in.data() : nullptr, out.data(), count, s.type, root);
    EXPECT_EQ(out, filled(s.type, count, [&](size_t i) { return value(root, i); })) << "broadcast from " << root;
  }
  out = poison(all);
  c.all_gather(in.data(), out.data(), count, s.type);
  EXPECT_EQ(out, filled(s.type, all, [&](size_t i) { return value(static_cast<int>(i / count), i % count); })) << "all_gather";
  const auto theirs = [&](size_t i) { return value(static_cast<int>(i / count), mine + i % count); };
  out = poison(all);
  c.all_to_all(wide.data(), out.data(), count, s.type);
  EXPECT_EQ(out, filled(s.type, all, theirs)) << "all_to_all";
  out = wide;
  c.all_to_all(out.data(), out.data(), count, s.type);
  EXPECT_EQ(out, filled(s.type, all, theirs)) << "all_to_all in place";
}

// Sums that round differently in every order: whoever computes them, all ranks get the same bits.
void expect_equal_bits(Communicator& c, int rank) {
  std::mt19937 random(static_cast<unsigned>(rank));
  std::normal_distribution<float> normal;
  std::vector<float> in(30011), out(in.size());
  for (float& x : in) x = normal(random);
  c.all_reduce(in.data(), out.data(), in.size(), DataType::float32, RedOp::sum);
  std::vector<float> all(out.size() * static_cast<size_t>(c.size()));
  c.all_gather(out.data(), all.data(), out.size(), DataType::float32);
  for (size_t r = 0; r < static_cast<size_t>(c.size()); ++r) EXPECT_EQ(std::memcmp(&all[r * out.size()], out.data(), out.size() * sizeof(float)), 0) << "rank " << r;
}

struct Case {
  const char* algorithm;
  std::vector<int> host_of;
  const char* channels;
};

class Forced : public testing::TestWithParam<Case> {};

TEST_P(Forced, MovesAllTypesAndSizes) {
  NEED_NETWORK();
  const Variable algorithm("MUSTER_ALGO", GetParam().algorithm), channels("MUSTER_CHANNELS", GetParam().channels);
  on_hosts(GetParam().host_of, [&](Communicator& c, int rank) {
    EXPECT_THAT(c.explain("all_reduce", 1 << 20, DataType::float32), HasSubstr(std::string("forced by MUSTER_ALGO=") + GetParam().algorithm));
    for (int t = 0; t < kDataTypes; ++t)
      for (const size_t count : {size_t{1}, size_t{37}, size_t{20011}}) {
        expect_right(c, rank, {static_cast<DataType>(t), count});
        if (testing::Test::HasFailure()) return;
      }
    expect_equal_bits(c, rank);
  });
}

INSTANTIATE_TEST_SUITE_P(All, Forced,
                         testing::Values(Case{"hierarchical", {0, 0, 1, 1}, "1"}, Case{"hierarchical", {0, 1, 0, 1, 0}, "3"}, Case{"hierarchical", {0, 0, 1, 1, 2}, "1"},
                                         Case{"tree", {0, 0, 1, 1}, "2"}, Case{"tree", {0, 1, 2, 0, 1}, "1"}),
                         [](const auto& p) {
                           std::string name = p.param.algorithm;
                           for (const int h : p.param.host_of) name += "_" + std::to_string(h);
                           return name;
                         });

// Without being forced: all ranks alike, or their messages would not match; and right, whatever it is.
class Chosen : public testing::TestWithParam<std::vector<int>> {};

TEST_P(Chosen, AlikeOnAllRanksAndRight) {
  NEED_NETWORK();
  on_hosts(GetParam(), [](Communicator& c, int rank) {
    for (const char* collective : {"all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "all_to_all", "gather", "scatter"})
      for (const size_t count : {1, 1000, 1 << 20}) {
        std::string text = c.explain(collective, count, DataType::float32);
        EXPECT_THAT(text, HasSubstr("hosts of")) << collective;
        text.resize(2000);
        std::vector<char> all(text.size() * static_cast<size_t>(c.size()));
        c.all_gather(text.data(), all.data(), text.size(), DataType::int8);
        for (size_t r = 0; r < static_cast<size_t>(c.size()); ++r)
          EXPECT_EQ(std::string(&all[r * text.size()], text.size()), text) << collective << " on rank " << r;
      }
    for (const size_t count : {size_t{1}, size_t{37}, size_t{20011}}) expect_right(c, rank, {DataType::float32, count});
    expect_equal_bits(c, rank);
  });
}

INSTANTIATE_TEST_SUITE_P(All, Chosen,
                         testing::Values(std::vector{0, 1}, std::vector{0, 0, 1, 1}, std::vector{0, 1, 0, 1, 0}, std::vector{0, 0, 1, 1, 2},
                                         std::vector{0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1}),
                         [](const auto& p) {
                           std::string name;
                           for (const int h : p.param) name += std::to_string(h);
                           return name;
                         });

TEST(EmulatedHosts, LongDataIsSharedOutInsideHostsFirst) {
  NEED_NETWORK();
  on_hosts({0, 0, 1, 1}, [](Communicator& c, int) {
    EXPECT_THAT(c.explain("all_reduce", 1 << 20, DataType::float32),
                testing::AllOf(HasSubstr("hierarchical"), HasSubstr("2 hosts of 2 ranks"), HasSubstr("from mem_alloc: hierarchical_window")));
    EXPECT_THAT(c.explain("all_gather", 1 << 20, DataType::float32), testing::Not(HasSubstr("mem_alloc")));
  });
}

// One buffer, guarded on both sides.
class Guarded {
 public:
  Guarded(size_t count, bool shared)
      : count_(count),
        shared_(shared),
        own_(shared ? 0 : all()),
        at_(shared ? static_cast<int*>(mem_alloc(all() * sizeof(int))) : own_.data()) {
    std::fill_n(at_, all(), kPoison);
  }
  ~Guarded() {
    if (shared_) mem_free(at_);
  }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  int* data() { return at_ + kGuard; }
  template <class F>
  void fill(F value) {
    for (size_t i = 0; i < count_; ++i) data()[i] = value(i);
  }
  template <class F>
  void expect(F value) const {
    for (size_t i = 0; i < all(); ++i) {
      const bool inside = i >= kGuard && i < kGuard + count_;
      ASSERT_EQ(at_[i], inside ? value(i - kGuard) : kPoison) << "element " << static_cast<long>(i) - static_cast<long>(kGuard) << " of " << count_;
    }
  }

 private:
  static constexpr size_t kGuard = 64;
  static constexpr int kPoison = -77;
  size_t all() const { return count_ + 2 * kGuard; }
  const size_t count_;
  const bool shared_;
  std::vector<int> own_;
  int* const at_;
};

// Where a host's buffers are windows, and long, its ranks load and store them, whatever other hosts have; where one isn't, they don't.
void expect_windows_where_they_are(const std::vector<int>& host_of, const std::vector<bool>& is_window) {
  on_hosts(host_of, [&](Communicator& c, int rank) {
    const auto n = static_cast<int>(host_of.size());
    bool all_of_host = true;
    int on_host = 0;
    for (size_t r = 0; r < host_of.size(); ++r)
      if (host_of[r] == host_of[static_cast<size_t>(rank)]) {
        all_of_host = all_of_host && is_window[r];
        ++on_host;
      }
    for (const size_t count : {size_t{3001}, size_t{100003}, size_t{1'500'007}}) {
      SCOPED_TRACE(testing::Message() << "rank " << rank << ", count " << count);
      Guarded in(count, is_window[static_cast<size_t>(rank)]), out(count, is_window[static_cast<size_t>(rank)]);
      const auto own = [&](size_t i) { return static_cast<int>(i % 1000) + rank; };
      const auto sum = [&](size_t i) { return n * static_cast<int>(i % 1000) + n * (n - 1) / 2; };
      in.fill(own);
      const BytesSent before = bytes_sent(c);
      c.all_reduce(in.data(), out.data(), count, DataType::int32, RedOp::sum);
      const BytesSent sent = bytes_sent(c) - before;
      in.expect(own);
      out.expect(sum);
      if (on_host > 1) {
        const bool in_windows = all_of_host && count * sizeof(int) >= 128 << 10;
        EXPECT_EQ(sent.shared_memory == 0, in_windows);
        if (!in_windows) {
          EXPECT_EQ(sent.direct, 0u);
        }
      }
      c.all_reduce(in.data(), in.data(), count, DataType::int32, RedOp::sum);
      in.expect(sum);
      if (testing::Test::HasFailure()) return;
    }
  });
}

TEST(EmulatedHosts, BuffersOfMemAllocAreUsedWhereTheyAreInsideAHost) {
  NEED_NETWORK();
  const Variable algorithm("MUSTER_ALGO", "hierarchical");
  expect_windows_where_they_are({0, 0, 1, 1}, {true, true, true, true});
}
TEST(EmulatedHosts, AHostWithoutThemSendsTheSameToOneThatHasThem) {
  NEED_NETWORK();
  const Variable algorithm("MUSTER_ALGO", "hierarchical_window");
  expect_windows_where_they_are({0, 1, 0, 1, 0}, {true, false, true, true, true});
}
TEST(EmulatedHosts, AHostOfOneRankSendsTheSameToo) {
  NEED_NETWORK();
  const Variable algorithm("MUSTER_ALGO", "hierarchical"), channels("MUSTER_CHANNELS", "2");
  expect_windows_where_they_are({0, 0, 0, 1}, {true, true, true, true});
}

// What only two ranks know the length of goes straight from one to the other.
TEST(EmulatedHosts, CountsThatTwoRanksKnowAreSentBetweenThem) {
  NEED_NETWORK();
  on_hosts({0, 1, 0, 1}, [](Communicator& c, int rank) {
    const size_t n = 4, me = static_cast<size_t>(rank);
    std::vector<size_t> sent(n), received(n);
    std::vector<int> in, want;
    for (size_t peer = 0; peer < n; ++peer) {
      sent[peer] = me + 2 * peer;
      in.insert(in.end(), sent[peer], static_cast<int>(10 * me + peer));
      received[peer] = peer + 2 * me;
      want.insert(want.end(), received[peer], static_cast<int>(10 * peer + me));
    }
    std::vector<int> out(want.size(), -1);
    c.all_to_all_v(in.data(), sent, {}, out.data(), received, {}, DataType::int32);
    EXPECT_EQ(out, want);
  });
}

TEST(EmulatedHosts, NcclsTreeIsTheTree) {
  NEED_NETWORK();
  const Variable algorithm("NCCL_ALGO", "Tree"), ours("MUSTER_ALGO", std::nullopt);
  on_hosts({0, 0, 1}, [](Communicator& c, int rank) {
    EXPECT_THAT(c.explain("all_reduce", 1 << 20, DataType::float32), HasSubstr("forced by NCCL_ALGO=tree"));
    expect_right(c, rank, {DataType::int32, 5000});
  });
}

// Of V-variants only those whose counts all ranks know can be passed on by others.
TEST(EmulatedHosts, UnevenCountsTakeTheSameWay) {
  NEED_NETWORK();
  const Variable algorithm("MUSTER_ALGO", "hierarchical");
  on_hosts({0, 0, 1, 1, 1}, [](Communicator& c, int rank) {
    const std::vector<size_t> counts = {3, 0, 20011, 1, 500};
    std::vector<int> in(counts[static_cast<size_t>(rank)], rank + 1), out(20515, -1), want;
    for (size_t r = 0; r < counts.size(); ++r) want.insert(want.end(), counts[r], static_cast<int>(r) + 1);
    c.all_gather_v(in.data(), in.size(), out.data(), counts, {}, DataType::int32);
    EXPECT_EQ(out, want);
    std::vector<int> all(want.size(), rank), shard(counts[static_cast<size_t>(rank)], -1);
    c.reduce_scatter_v(all.data(), shard.data(), counts, DataType::int32, RedOp::sum);
    EXPECT_THAT(shard, testing::Each(10));
  });
}

TEST(EmulatedHosts, ChildrenHavePlacementsOfTheirOwn) {
  NEED_NETWORK();
  const Variable algorithm("MUSTER_ALGO", "hierarchical");
  on_hosts({0, 0, 1, 1}, [](Communicator& c, int rank) {
    const auto reason = [](const Communicator& of) { return of.explain("all_reduce", 1 << 20, DataType::float32); };
    Communicator inside = c.split(rank / 2, rank), across = c.split(rank % 2, rank), backwards = c.split(0, -rank), three = c.split(rank == 0 ? -1 : 0, rank);
    EXPECT_THAT(reason(inside), HasSubstr("needs two hosts or more"));
    EXPECT_THAT(reason(across), HasSubstr("each of 2 has one"));
    EXPECT_THAT(reason(backwards), HasSubstr("forced by MUSTER_ALGO=hierarchical"));
    for (Communicator* child : {&inside, &across, &backwards}) expect_right(*child, child->rank(), {DataType::int32, 3000});
    if (rank == 0) return;
    EXPECT_THAT(reason(three), HasSubstr("forced by MUSTER_ALGO=hierarchical"));
    expect_right(three, three.rank(), {DataType::int32, 3000});
  });
}

}  // namespace
}  // namespace muster
