// V-variants through communicators: random counts with many zeros, every form, ranks as threads and as processes; every
// element of every rank against an exact reference, gaps and guards included.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "algorithms/algorithms.h"
#include "muster/muster.h"
#include "support/outcome.h"
#include "support/ranks.h"

namespace muster {
namespace {

using test::outcome_of;
using test::run_process_ranks;
using test::run_threads;
using test::Variable;

using Counts = std::vector<size_t>;
constexpr int32_t kPoison = -77777777;
constexpr size_t kGuard = 64;

// Element i of what rank `from` has for rank `to`.
int32_t value(int from, int to, size_t i) {
  return static_cast<int32_t>((static_cast<size_t>(from) * 100003 + static_cast<size_t>(to) * 7919 + i * 13 + i / 31) % 10007);
}
constexpr int kAll = 99;  // what is for all ranks

// Memory with guards, from malloc or mem_alloc, shifted by elements.
class Buffer {
 public:
  Buffer(size_t n, bool alloc, size_t shift) : n_(n), alloc_(alloc) {
    all_ = n + 2 * kGuard + shift;
    base_ = static_cast<int32_t*>(alloc ? mem_alloc(all_ * 4) : std::malloc(all_ * 4));
    std::fill(base_, base_ + all_, kPoison);
    data_ = base_ + kGuard + shift;
  }
  ~Buffer() { alloc_ ? mem_free(base_) : std::free(base_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  int32_t* data() { return data_; }
  // As it must be: what was expected at each place, poison elsewhere.
  void expect(const std::vector<int32_t>& want, const std::string& what) const {
    for (const int32_t* p = base_; p < base_ + all_; ++p) {
      const auto i = p - data_;
      const bool inside = i >= 0 && static_cast<size_t>(i) < n_;
      ASSERT_EQ(*p, inside ? want[static_cast<size_t>(i)] : kPoison) << what << ": element " << i << " of " << n_;
    }
  }

 private:
  size_t n_, all_ = 0;
  bool alloc_;
  int32_t *base_, *data_;
};

struct Layout {
  Counts counts, begins;
  size_t size = 0;
};

// Parts in any order with gaps, or one behind the other (`packed`).
Layout lay_out(Counts counts, bool packed, std::mt19937& random) {
  Layout l{std::move(counts), {}, 0};
  std::vector<size_t> order(l.counts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  if (!packed) std::shuffle(order.begin(), order.end(), random);
  l.begins.resize(order.size());
  for (const size_t r : order) {
    l.begins[r] = l.size;
    l.size += l.counts[r] + (packed ? 0 : random() % 5);
  }
  return l;
}

struct Form {
  bool alloc = false, in_place = false, packed = true;
  size_t shift = 0;
};

std::string text_of(const char* what, const Counts& counts, const Form& f, int rank) {
  return std::string(what) + " " + testing::PrintToString(counts) + (f.alloc ? ", mem_alloc" : "") + (f.in_place ? ", in place" : "") +
         (f.packed ? "" : ", gaps") + ", rank " + std::to_string(rank);
}

void all_gather_v(Communicator& c, const Counts& counts, const Form& f, std::mt19937 random) {
  const auto me = static_cast<size_t>(c.rank());
  const Layout out = lay_out(counts, f.packed, random);
  Buffer a(counts[me], f.alloc, f.shift), b(out.size, f.alloc, f.shift / 2);
  int32_t* const send = f.in_place ? b.data() + out.begins[me] : a.data();
  std::vector<int32_t> own(counts[me]), want(out.size, kPoison);
  for (size_t i = 0; i < own.size(); ++i) own[i] = send[i] = value(c.rank(), kAll, i);
  for (size_t r = 0; r < counts.size(); ++r)
    for (size_t i = 0; i < counts[r]; ++i) want[out.begins[r] + i] = value(static_cast<int>(r), kAll, i);
  c.all_gather_v(send, counts[me], b.data(), counts, f.packed ? Counts{} : out.begins, DataType::int32);
  const std::string what = text_of("all_gather_v", counts, f, c.rank());
  b.expect(want, what);
  if (!f.in_place) a.expect(own, what + ", send buffer");
}

void reduce_scatter_v(Communicator& c, const Counts& counts, const Form& f, std::mt19937 random) {
  const auto me = static_cast<size_t>(c.rank());
  const Layout in = lay_out(counts, true, random);
  Buffer a(in.size, f.alloc, f.shift), b(counts[me], f.alloc, f.shift / 2);
  std::vector<int32_t> sent(in.size);
  for (size_t r = 0; r < counts.size(); ++r)
    for (size_t i = 0; i < counts[r]; ++i) sent[in.begins[r] + i] = value(c.rank(), static_cast<int>(r), i);
  std::copy(sent.begin(), sent.end(), a.data());
  std::vector<int32_t> want(counts[me]);
  for (size_t i = 0; i < want.size(); ++i)
    for (int r = 0; r < c.size(); ++r) want[i] += value(r, c.rank(), i);
  c.reduce_scatter_v(a.data(), f.in_place ? a.data() + in.begins[me] : b.data(), counts, DataType::int32, RedOp::sum);
  const std::string what = text_of("reduce_scatter_v", counts, f, c.rank());
  if (!f.in_place) {
    b.expect(want, what);
    a.expect(sent, what + ", send buffer");
  } else {
    for (size_t i = 0; i < want.size(); ++i) ASSERT_EQ(a.data()[in.begins[me] + i], want[i]) << what << ": element " << i;
  }
}

// matrix[from][to]
void all_to_all_v(Communicator& c, const std::vector<Counts>& matrix, const Form& f, std::mt19937 random) {
  const auto me = static_cast<size_t>(c.rank());
  Counts received;
  for (const Counts& row : matrix) received.push_back(row[me]);
  const Layout in = lay_out(matrix[me], f.packed, random), out = f.in_place ? in : lay_out(received, f.packed, random);
  if (f.in_place) {
    ASSERT_EQ(received, matrix[me]) << "the test's own mistake";
  }
  Buffer a(in.size, f.alloc, f.shift), b(out.size, f.alloc, f.shift / 2);
  int32_t* const send = f.in_place ? b.data() : a.data();
  std::vector<int32_t> sent(in.size, kPoison), want(out.size, kPoison);
  for (size_t r = 0; r < matrix.size(); ++r) {
    for (size_t i = 0; i < in.counts[r]; ++i) sent[in.begins[r] + i] = value(c.rank(), static_cast<int>(r), i);
    for (size_t i = 0; i < out.counts[r]; ++i) want[out.begins[r] + i] = value(static_cast<int>(r), c.rank(), i);
  }
  std::copy(sent.begin(), sent.end(), send);
  const Counts none;
  c.all_to_all_v(send, in.counts, f.packed ? none : in.begins, b.data(), out.counts, f.packed ? none : out.begins, DataType::int32);
  const std::string what = text_of("all_to_all_v", matrix[me], f, c.rank());
  b.expect(want, what);
  if (!f.in_place) a.expect(sent, what + ", send buffer");
}

void gather_v(Communicator& c, const Counts& counts, int root, const Form& f, std::mt19937 random) {
  const auto me = static_cast<size_t>(c.rank());
  const bool here = c.rank() == root;
  const Layout out = lay_out(counts, f.packed, random);
  Buffer a(counts[me], f.alloc, f.shift), b(out.size, f.alloc, f.shift / 2);
  int32_t* const send = f.in_place && here ? b.data() + out.begins[me] : a.data();
  std::vector<int32_t> want(out.size, kPoison);
  for (size_t i = 0; i < counts[me]; ++i) send[i] = value(c.rank(), root, i);
  for (size_t r = 0; here && r < counts.size(); ++r)
    for (size_t i = 0; i < counts[r]; ++i) want[out.begins[r] + i] = value(static_cast<int>(r), root, i);
  const Counts none;
  c.gather_v(send, counts[me], here ? b.data() : nullptr, here ? counts : none, here && !f.packed ? out.begins : none, DataType::int32, root);
  b.expect(want, text_of("gather_v", counts, f, c.rank()));
}

void scatter_v(Communicator& c, const Counts& counts, int root, const Form& f, std::mt19937 random) {
  const auto me = static_cast<size_t>(c.rank());
  const bool here = c.rank() == root;
  const Layout in = lay_out(counts, f.packed, random);
  Buffer a(in.size, f.alloc, f.shift), b(counts[me], f.alloc, f.shift / 2);
  std::vector<int32_t> sent(in.size, kPoison), want(counts[me]);
  for (size_t r = 0; here && r < counts.size(); ++r)
    for (size_t i = 0; i < counts[r]; ++i) sent[in.begins[r] + i] = value(root, static_cast<int>(r), i);
  std::copy(sent.begin(), sent.end(), a.data());
  for (size_t i = 0; i < want.size(); ++i) want[i] = value(root, c.rank(), i);
  const Counts none;
  const bool in_place = f.in_place && here;
  c.scatter_v(here ? a.data() : nullptr, here ? counts : none, here && !f.packed ? in.begins : none,
              in_place ? a.data() + in.begins[me] : b.data(), counts[me], DataType::int32, root);
  const std::string what = text_of("scatter_v", counts, f, c.rank());
  a.expect(sent, what + ", send buffer");
  if (!in_place) b.expect(want, what);
}

// Equal on all ranks: drawn from one seed.
size_t draw(std::mt19937& random, size_t most) {
  switch (random() % 4) {
    case 0: return 0;
    case 1: return random() % 8;
    default: return random() % (most + 1);
  }
}
Counts draw_counts(std::mt19937& random, size_t n, size_t most) {
  Counts counts(n);
  for (size_t& x : counts) x = draw(random, most);
  if (random() % 6 == 0) counts.assign(n, 0);
  if (random() % 6 == 0) counts[random() % n] = most;
  return counts;
}

void everything(Communicator& c, unsigned seed, int rounds, size_t most) {
  std::mt19937 random(seed);
  const auto n = static_cast<size_t>(c.size());
  for (int round = 0; round < rounds; ++round) {
    const size_t limit = round % 4 == 3 ? most : 1 + most / 50;
    const Form f{round % 3 == 1, random() % 2 == 0, random() % 2 == 0, random() % 4};
    const Counts counts = draw_counts(random, n, limit);
    const int root = static_cast<int>(random() % n);
    std::vector<Counts> matrix;
    for (size_t r = 0; r < n; ++r) matrix.push_back(draw_counts(random, n, limit));
    if (f.in_place)
      for (size_t r = 0; r < n; ++r)
        for (size_t s = 0; s < r; ++s) matrix[r][s] = matrix[s][r];
    all_gather_v(c, counts, f, random);
    reduce_scatter_v(c, counts, f, random);
    // In place both sides lie alike; displacements are each rank's own affair, too.
    all_to_all_v(c, matrix, f, std::mt19937(seed + static_cast<unsigned>(round) * 64 + static_cast<unsigned>(c.rank())));
    gather_v(c, counts, root, f, random);
    scatter_v(c, counts, root, f, random);
    if (testing::Test::HasFatalFailure()) return;
    if (round % 5 == 0) c.barrier();
  }
}

TEST(Uneven, OneRank) {
  Communicator c = std::move(Communicator::init_all(1)[0]);
  everything(c, 1, 40, 20000);
}
TEST(Uneven, Threads) {
  for (const int n : {2, 3, 4, 5})
    run_threads(n, [&](Communicator& c, int) { everything(c, 10 + static_cast<unsigned>(n), 40, 30000); });
}
TEST(Uneven, Processes) {
  for (const int n : {2, 3, 5})
    run_process_ranks(n, [&](Communicator& c, int) { everything(c, 20 + static_cast<unsigned>(n), 40, 30000); });
}

// Messages of many tiles, so that ranks count different numbers of them.
TEST(Uneven, ManyTiles) {
  run_process_ranks(3, [](Communicator& c, int) { everything(c, 31, 8, 700000); });
}

TEST(Uneven, EveryAlgorithmAndSeveralChannels) {
  for (const char* channels : {"1", "3"})
    for (const char* algorithm : {"ring", "direct", "bruck", "window", "binomial", "pairwise"}) {
      const Variable forced("MUSTER_ALGO", std::string(algorithm)), parts("MUSTER_CHANNELS", std::string(channels));
      run_threads(4, [&](Communicator& c, int) { everything(c, 41, 10, 3000); });
      if (HasFailure()) {
        ADD_FAILURE() << algorithm << " with " << channels << " channels";
        return;
      }
    }
}

TEST(Uneven, ProgramsAreCheckedOnDemand) {
  const Variable check("MUSTER_CHECK", "1");
  run_threads(3, [](Communicator& c, int) { everything(c, 61, 8, 3000); });
}

TEST(Uneven, ManyRanks) {
  run_threads(17, [](Communicator& c, int) { everything(c, 51, 6, 500); });
}

template <class T>
void one_type(Communicator& c, DataType type, RedOp op, const std::function<T(int)>& of, T want) {
  const auto n = static_cast<size_t>(c.size());
  Counts counts(n);
  for (size_t r = 0; r < n; ++r) counts[r] = r * 7 + (r == 1 ? 1000 : 0);
  const size_t total = std::accumulate(counts.begin(), counts.end(), size_t{0});
  std::vector<T> in(total, of(c.rank())), out(counts[static_cast<size_t>(c.rank())] + 1, T{});
  c.reduce_scatter_v(in.data(), out.data(), counts, type, op);
  EXPECT_EQ(out.back(), T{});
  out.pop_back();
  EXPECT_THAT(out, testing::Each(want)) << name_of(type) << ' ' << name_of(op);
}

TEST(Uneven, OperationsAndTypesOfReduceScatterV) {
  run_threads(3, [](Communicator& c, int) {
    one_type<double>(c, DataType::float64, RedOp::avg, [](int r) { return r * 3.0; }, 3.0);
    one_type<float>(c, DataType::float32, RedOp::max, [](int r) { return static_cast<float>(r); }, 2.0f);
    one_type<int8_t>(c, DataType::int8, RedOp::prod, [](int r) { return static_cast<int8_t>(r + 1); }, 6);
    one_type<uint64_t>(c, DataType::uint64, RedOp::bit_or, [](int r) { return uint64_t{1} << (20 * r); }, 1 | uint64_t{1} << 20 | uint64_t{1} << 40);
    one_type<float>(c, DataType::float32, RedOp::logical_and, [](int r) { return static_cast<float>(r + 5); }, 1.0f);
    const auto factor = static_cast<int32_t>(c.rank() + 1);
    const Counts counts{2, 0, 4000};
    std::vector<int32_t> in(4002, 2), out(counts[static_cast<size_t>(c.rank())]);
    c.reduce_scatter_v(in.data(), out.data(), counts, DataType::int32, ReduceOp::pre_mul_sum(&factor, DataType::int32));
    EXPECT_THAT(out, testing::Each(12));
  });
}

// The caller's counts may go as soon as the call returns, in groups and on streams, too.
TEST(Uneven, GroupsAndStreamsKeepTheCounts) {
  const auto body = [](Communicator& c, int rank) {
    const auto n = static_cast<size_t>(c.size()), me = static_cast<size_t>(rank);
    HostStream stream;
    for (int round = 0; round < 12; ++round) {
      HostStream* const on = round % 2 ? &stream : nullptr;
      std::vector<int32_t> in(5000, rank), gathered(5000 * n, -1), mixed(5000 * n, -1), sum(1, -1), got(3, -1);
      const std::vector<int32_t> three(3, rank);
      group_start();
      {
        Counts counts(n, 5000), row(n), column(n);
        counts[0] = 10 + static_cast<size_t>(round);
        c.all_gather_v(in.data(), counts[me], gathered.data(), counts, {}, DataType::int32, on);
        for (size_t r = 0; r < n; ++r) {
          row[r] = me * 3 + r;
          column[r] = r * 3 + me;
        }
        c.all_to_all_v(in.data(), row, Counts(n, 0), mixed.data(), column, {}, DataType::int32, on);
        c.all_reduce(&rank, sum.data(), 1, DataType::int32, RedOp::sum, on);
        c.send(three.data(), 3, DataType::int32, (rank + 1) % c.size(), on);
        c.recv(got.data(), 3, DataType::int32, (rank + c.size() - 1) % c.size(), on);
        counts.assign(n, 1);
        row.assign(n, 1);
        column.assign(n, 1);
      }
      group_end();
      stream.synchronize();
      size_t at = 0;
      for (size_t r = 0; r < n; ++r)
        for (size_t i = 0; i < (r == 0 ? 10 + static_cast<size_t>(round) : 5000); ++i) ASSERT_EQ(gathered[at++], static_cast<int32_t>(r));
      ASSERT_EQ(gathered[at], -1);
      at = 0;
      for (size_t r = 0; r < n; ++r)
        for (size_t i = 0; i < r * 3 + me; ++i) ASSERT_EQ(mixed[at++], static_cast<int32_t>(r));
      ASSERT_EQ(mixed[at], -1);
      ASSERT_EQ(sum[0], c.size() * (c.size() - 1) / 2);
      ASSERT_THAT(got, testing::Each((rank + c.size() - 1) % c.size()));
    }
  };
  run_threads(3, body);
  run_process_ranks(2, body);
}

// More shapes than are remembered, and displacements that change while counts don't: plans are made again, ranks stay
// in step about windows.
TEST(Uneven, PlansAreForgottenAndMadeAgain) {
  run_process_ranks(2, [](Communicator& c, int rank) {
    for (size_t k = 0; k < 700; ++k) {
      const Counts counts{k % 300, 3000};
      const size_t gap = rank == 0 ? k % 3 : 1;  // one rank's own
      const Counts begins{gap, 400 + gap};
      std::vector<int32_t> in(3000, rank + 1), out(3500, -1);
      c.all_gather_v(in.data(), counts[static_cast<size_t>(rank)], out.data(), counts, begins, DataType::int32);
      for (size_t r = 0; r < 2; ++r)
        for (size_t i = 0; i < counts[r]; ++i) ASSERT_EQ(out[begins[r] + i], static_cast<int32_t>(r) + 1) << k;
      const Counts row(2, k), column(2, k);
      std::vector<int32_t> sent(2 * k, rank), got(2 * k + 1, -1);
      c.all_to_all_v(sent.data(), row, {}, got.data(), column, {}, DataType::int32);
      for (size_t i = 0; i < 2 * k; ++i) ASSERT_EQ(got[i], static_cast<int32_t>(i / k));
    }
  });
}

// Memory of which only what is touched exists.
class Sparse {
 public:
  explicit Sparse(size_t bytes) : bytes_(bytes), p_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {}
  ~Sparse() { munmap(p_, bytes_); }
  Sparse(const Sparse&) = delete;
  Sparse& operator=(const Sparse&) = delete;
  bool mapped() const { return p_ != MAP_FAILED; }
  int32_t* data() const { return static_cast<int32_t*>(p_); }

 private:
  size_t bytes_;
  void* p_;
};

TEST(Uneven, DisplacementsBeyond32Bits) {
  constexpr size_t kFar = (size_t{1} << 32) + 7;  // elements
  for (const char* windows : {"0", "1"}) {
    const Variable use("MUSTER_WINDOWS", std::string(windows));
    run_threads(3, [](Communicator& c, int rank) {
      const Counts counts{5, 0, 70001}, begins{kFar - 5, 0, kFar};
      const Sparse in((kFar + 70001) * 4), out((kFar + 70001) * 4);
      if (!in.mapped() || !out.mapped()) GTEST_SKIP() << "no address space for sparse memory";
      const auto me = static_cast<size_t>(rank);
      int32_t* const own = in.data() + begins[me];
      for (size_t i = 0; i < counts[me]; ++i) own[i] = value(rank, kAll, i);
      c.all_gather_v(own, counts[me], out.data(), counts, begins, DataType::int32);
      for (size_t r = 0; r < 3; ++r)
        for (size_t i = 0; i < counts[r]; ++i) ASSERT_EQ(out.data()[begins[r] + i], value(static_cast<int>(r), kAll, i)) << r << ' ' << i;
      const Counts three(3, 3), far{kFar, kFar - 3, 0};
      const Sparse mixed((kFar + 3) * 4);
      int32_t send[9];
      for (size_t r = 0; r < 3; ++r)
        for (size_t i = 0; i < 3; ++i) send[r * 3 + i] = value(rank, static_cast<int>(r), i);
      c.all_to_all_v(send, three, {}, mixed.data(), three, far, DataType::int32);
      for (size_t r = 0; r < 3; ++r)
        for (size_t i = 0; i < 3; ++i) ASSERT_EQ(mixed.data()[far[r] + i], value(static_cast<int>(r), rank, i)) << r << ' ' << i;
    });
  }
}

// Counts that add up to more than 2^31 elements, and buffers of more than 2^32 bytes: zeros but for some elements at places
// where a count that was cut off would look.
template <class T>
void check_sum_of_counts_beyond(DataType type, T one, T sum_of_two, const Counts& counts, bool even) {
  run_threads(2, [&](Communicator& c, int rank) {
    const size_t all = counts[0] + counts[1], mine = counts[static_cast<size_t>(rank)], begin = rank ? counts[0] : 0;
    const Sparse in(all * sizeof(T)), out((mine + 1) * sizeof(T));
    if (!in.mapped() || !out.mapped()) GTEST_SKIP() << "no address space for sparse memory";
    T* const from = reinterpret_cast<T*>(in.data());
    T* const to = reinterpret_cast<T*>(out.data());
    std::set<size_t> marked{0, 1, counts[0] - 1, counts[0], all - 1, size_t{1} << 29, size_t{1} << 30, (size_t{1} << 30) - 1};
    for (const size_t i : {size_t{1} << 31, (size_t{1} << 31) - 1})
      if (i < all) marked.insert(i);
    for (const size_t i : marked) from[i] = one;
    to[mine] = one;
    if (even)
      c.reduce_scatter(from, to, mine, type, RedOp::sum);
    else
      c.reduce_scatter_v(from, to, counts, type, RedOp::sum);
    ptrdiff_t here = 0;
    for (const size_t i : marked) {
      if (i < begin || i >= begin + mine) continue;
      EXPECT_EQ(to[i - begin], sum_of_two) << i;
      ++here;
    }
    EXPECT_EQ(std::count(to, to + mine, T{0}) + here, static_cast<ptrdiff_t>(mine)) << "all else is zero";
    EXPECT_EQ(to[mine], one) << "behind the end";
  });
}
TEST(Uneven, LongReduceScatterOfCountsThatAddUpBeyond32Bits) {
  constexpr size_t kMany = (size_t{1} << 30) + 8;
  check_sum_of_counts_beyond<int8_t>(DataType::int8, -3, -6, {kMany + 5, kMany - 2}, false);
  check_sum_of_counts_beyond<uint16_t>(DataType::bfloat16, 0x3f80, 0x4000, {kMany, kMany}, true);  // 1, 2
  const Variable through_slots("MUSTER_WINDOWS", "0");
  check_sum_of_counts_beyond<int8_t>(DataType::int8, 3, 6, {kMany, kMany}, true);
  check_sum_of_counts_beyond<uint16_t>(DataType::bfloat16, 0x3f80, 0x4000, {kMany - 3, kMany + 1}, false);
}

TEST(Uneven, LongPartsOfMoreThan4GiB) {
  constexpr size_t kBeyond = (size_t{1} << 32) + 8;  // bytes
  const auto word = [](size_t i) { return (i + 3) * 0x9e3779b97f4a7c15ULL; };
  run_threads(2, [&](Communicator& c, int rank) {
    std::vector<uint64_t> memory(kBeyond / 8);
    uint8_t few[5] = {1, 2, 3, 4, static_cast<uint8_t>(rank)};
    if (rank == 0)
      for (size_t i = 0; i < memory.size(); ++i) memory[i] = word(i);
    if (rank == 0)
      c.all_to_all_v(memory.data(), Counts{0, kBeyond}, {}, few, Counts{0, 5}, {}, DataType::uint8);
    else
      c.all_to_all_v(few, Counts{5, 0}, {}, memory.data(), Counts{kBeyond, 0}, {}, DataType::uint8);
    for (size_t i = 0; i < memory.size(); ++i) ASSERT_EQ(memory[i], word(i)) << i;
    ASSERT_EQ(few[4], 1);
  });
}

// Rank 1 sends nothing, not even to itself, and rank 0 gets only its own.
void check_one_sided_counts(Communicator& c, int rank) {
  for (const size_t unit : {size_t{7}, size_t{7077888}}) {
    std::vector<uint16_t> in(rank == 0 ? 2 * unit : 0), out(unit + 1, 0xa5a5);
    for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<uint16_t>(i * 40503 + i / 65536);
    const Counts to = rank == 0 ? Counts{unit, unit} : Counts{0, 0}, from{unit, 0};
    c.all_to_all_v(in.empty() ? nullptr : in.data(), to, {}, out.data(), from, {}, DataType::bfloat16);
    for (size_t i = 0; i < unit; ++i) {
      const size_t sent = static_cast<size_t>(rank) * unit + i;
      ASSERT_EQ(out[i], static_cast<uint16_t>(sent * 40503 + sent / 65536)) << i;
    }
    EXPECT_EQ(out[unit], 0xa5a5);
  }
}
TEST(Uneven, OneRankOnlyReceives) {
  run_threads(2, check_one_sided_counts);
  run_process_ranks(2, check_one_sided_counts);
}

// Ranks that neither send nor receive, in the first call that a communicator sees, and what comes after it.
TEST(Uneven, EmptyRowsAndColumnsInTheFirstCall) {
  const auto nobody = [](int, int) { return false; };
  const auto column_1_empty = [](int, int to) { return to != 1; };
  const auto two_take_part = [](int from, int to) { return from < 2 && to < 2; };
  for (const std::function<bool(int, int)>& sends : {std::function<bool(int, int)>(nobody), {column_1_empty}, {two_take_part}}) {
    const auto body = [&](Communicator& c, int rank) {
      for (const bool all : {false, true, false}) {
        const auto count = [&](int from, int to) { return all || sends(from, to) ? static_cast<size_t>(3 + from + 10 * to) : 0; };
        Counts to(4), from(4);
        std::vector<int32_t> in, expected;
        for (int r = 0; r < 4; ++r) {
          to[static_cast<size_t>(r)] = count(rank, r);
          from[static_cast<size_t>(r)] = count(r, rank);
          for (size_t i = 0; i < count(rank, r); ++i) in.push_back(value(rank, r, i));
          for (size_t i = 0; i < count(r, rank); ++i) expected.push_back(value(r, rank, i));
        }
        std::vector<int32_t> out(expected.size() + kGuard, kPoison);
        expected.resize(out.size(), kPoison);
        c.all_to_all_v(in.data(), to, {}, out.data(), from, {}, DataType::int32);
        EXPECT_EQ(out, expected) << "rank " << rank;
      }
    };
    run_threads(4, body);
    run_process_ranks(4, body);
  }
}

TEST(Uneven, AllZeroNeedsNobody) {
  run_threads(3, [](Communicator& c, int) {
    const Counts none(3, 0);
    c.all_gather_v(nullptr, 0, nullptr, none, {}, DataType::float32);
    c.reduce_scatter_v(nullptr, nullptr, none, DataType::float32, RedOp::sum);
    c.all_to_all_v(nullptr, none, {}, nullptr, none, {}, DataType::float32);
    c.gather_v(nullptr, 0, nullptr, none, {}, DataType::float32, 1);
    c.scatter_v(nullptr, none, {}, nullptr, 0, DataType::float32, 2);
    c.barrier();
  });
}

}  // namespace
}  // namespace muster
