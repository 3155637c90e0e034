// The formulas of prices say what programs do: bytes counted in the programs of all ranks.
#include "plan/work.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "program/program.h"

namespace muster {
namespace {

struct Counted {
  double near_bytes = 0;  // of the rank that sends or receives most within its host
  double far_bytes = 0;   // of the host that sends or receives most
  double rank_bytes = 0;  // of the rank that sends or receives most, wherever to
  double near_messages = 0, far_messages = 0;  // of the rank that sends or receives most
  double combined = 0;                         // of the rank that adds most
  double longest_far = 0;
};

Counted count(const Algorithm& a, const Spread& s, double data) {
  std::vector<double> near_out(static_cast<size_t>(s.ranks)), near_in = near_out, out = near_out,
                                                              in = near_out;
  std::vector<double> far_out(static_cast<size_t>(s.hosts)), far_in = far_out;
  std::vector<double> near_sent = out, near_received = out, far_sent = out, far_received = out, combined = out;
  double longest_far = 0;
  Placement placement;
  for (int rank = 0; rank < s.ranks; ++rank) placement.host_of.push_back(rank / s.per_host);
  for (int rank = 0; rank < s.ranks; ++rank) {
    const Program p = a.make({s.ranks, rank, 0, &placement});
    const double chunk = splits_count(a.coll) ? data / p.chunks : data / s.ranks;
    for (const Step& step : p.channels[0].loops[0].steps) {
      const auto r = static_cast<size_t>(rank), host = static_cast<size_t>(rank / s.per_host);
      const double bytes = chunk * step.pieces;
      const auto add = [&](const Ref& ref, std::vector<double>& near, std::vector<double>& far,
                           std::vector<double>& all, std::vector<double>& near_count,
                           std::vector<double>& far_count) {
        if (ref.kind != Ref::Kind::slot) return;
        all[r] += bytes;
        const bool is_near = ref.peer / s.per_host == rank / s.per_host;
        (is_near ? near[r] : far[host]) += bytes;
        ++(is_near ? near_count : far_count)[r];
        if (!is_near) longest_far = std::max(longest_far, bytes);
      };
      for (const Ref& ref : step.destinations) add(ref, near_out, far_out, out, near_sent, far_sent);
      for (const Ref& ref : step.sources) add(ref, near_in, far_in, in, near_received, far_received);
      if (reduces(a.coll) && step.sources.size() > 1)
        combined[r] += bytes * static_cast<double>(step.sources.size() - 1);
    }
  }
  const auto most = [](const std::vector<double>& x, const std::vector<double>& y) {
    return std::max(*std::max_element(x.begin(), x.end()), *std::max_element(y.begin(), y.end()));
  };
  return {most(near_out, near_in),
          most(far_out, far_in),
          most(out, in),
          most(near_sent, near_received),
          most(far_sent, far_received),
          most(combined, combined),
          longest_far};
}

bool is_power(int n) { return (n & (n - 1)) == 0; }

TEST(Work, BytesAreThoseOfThePrograms) {
  constexpr double kData = 5040 * 64;  // divided by all rank counts here
  for (const Algorithm& a : algorithms()) {
    for (const auto& [hosts, per_host] : std::vector<std::pair<int, int>>{
             {1, 2}, {1, 3}, {1, 8}, {2, 1}, {2, 2}, {2, 4}, {4, 2}, {3, 3}, {4, 1}, {5, 2}}) {
      const Spread s{hosts * per_host, hosts, per_host};
      const std::optional<Work> w = work_of(a, s, kData);
      if (!w) continue;
      SCOPED_TRACE(std::string(name_of(a.coll)) + " " + a.name + ", " + std::to_string(hosts) + " hosts of " +
                   std::to_string(per_host));
      const Counted c = count(a, s, kData);
      const std::string name = a.name;
      const bool by_distance =
          name == "doubling" || name == "halving_doubling" || name == "binomial" || name == "bruck";
      if (!by_distance || (is_power(per_host) && is_power(hosts) && name != "bruck")) {
        EXPECT_NEAR(w->near_bytes, c.near_bytes, 1e-6 * kData);
        EXPECT_NEAR(w->far_bytes, c.far_bytes, 1e-6 * kData);
        EXPECT_NEAR(w->combined, c.combined, 1e-6 * kData);
        if (hosts > 1) {
          EXPECT_NEAR(w->longest_far, c.longest_far, 1e-6 * kData);
        }
        if (!w->ring) {  // a ring's are those that follow one another
          EXPECT_EQ(w->near_messages, c.near_messages);
          EXPECT_EQ(w->far_messages, c.far_messages);
        }
      } else if (hosts == 1) {
        // What a rank exchanges in all; of odd numbers of ranks no less, and at most a rank's data more.
        EXPECT_GE(w->near_bytes, c.rank_bytes - 1e-6 * kData);
        EXPECT_LE(w->near_bytes, c.rank_bytes + kData);
      }
    }
  }
}

TEST(Work, MoreDataIsNeverLessWork) {
  for (const Algorithm& a : algorithms())
    for (const Spread s : {Spread{8, 1, 8}, Spread{16, 2, 8}, Spread{7, 7, 1}, Spread{15, 2, 8}}) {
      const std::optional<Work> small = work_of(a, s, 1000), large = work_of(a, s, 1001);
      if (!small) continue;
      EXPECT_LE(small->near_bytes, large->near_bytes) << a.name;
      EXPECT_LE(small->far_bytes, large->far_bytes) << a.name;
      EXPECT_EQ(small->near_rounds + small->far_rounds, large->near_rounds + large->far_rounds) << a.name;
    }
}

TEST(Work, RoundsOfTextbooks) {
  const Spread one_host{8, 1, 8}, hosts{16, 2, 8};
  const auto rounds = [](Coll coll, const char* name, const Spread& s) {
    const Work w = *work_of(*find_algorithm(coll, name), s, 64);
    return std::pair(w.near_rounds, w.far_rounds);
  };
  EXPECT_EQ(rounds(Coll::all_reduce, "ring", one_host), std::pair(14.0, 0.0));  // 2 (n - 1)
  EXPECT_EQ(rounds(Coll::all_gather, "ring", one_host), std::pair(7.0, 0.0));
  EXPECT_EQ(rounds(Coll::all_reduce, "doubling", one_host), std::pair(3.0, 0.0));  // log n
  EXPECT_EQ(rounds(Coll::all_reduce, "halving_doubling", hosts), std::pair(6.0, 2.0));
  EXPECT_EQ(rounds(Coll::all_reduce, "ring", hosts).first + rounds(Coll::all_reduce, "ring", hosts).second,
            30);
  EXPECT_EQ(rounds(Coll::broadcast, "binomial", hosts), std::pair(3.0, 1.0));
  EXPECT_EQ(rounds(Coll::all_to_all, "pairwise", one_host), std::pair(1.0, 0.0));
}

}  // namespace
}  // namespace muster
