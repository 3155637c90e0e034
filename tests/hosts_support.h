// What tests of ranks on several hosts share: data of which every element is known, and who listens where.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "muster/muster.h"

namespace muster::test {

constexpr DataType kFloat = DataType::float32;
using Floats = std::vector<float>;

// Element i of rank r's data: whole numbers whose sums are exact.
inline float element(int r, size_t i) {
  return static_cast<float>((static_cast<size_t>(r) * 31 + i * 7) % 61);
}

inline Floats elements(int r, size_t first, size_t count) {
  Floats v(count);
  for (size_t i = 0; i < count; ++i) v[i] = element(r, first + i);
  return v;
}

inline Floats sums(int n, size_t first, size_t count) {
  Floats v(count);
  for (int r = 0; r < n; ++r)
    for (size_t i = 0; i < count; ++i) v[i] += element(r, first + i);
  return v;
}

inline void append(Floats& to, const Floats& more) { to.insert(to.end(), more.begin(), more.end()); }

// Ports at which somebody listens in this network namespace.
inline std::set<int> listening_ports() {
  std::set<int> ports;
  for (const char* file : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
    std::ifstream in(file);
    std::string line, index, local, remote, state;
    for (std::getline(in, line); std::getline(in, line);) {
      std::istringstream(line) >> index >> local >> remote >> state;
      if (state == "0A") ports.insert(std::stoi(local.substr(local.rfind(':') + 1), nullptr, 16));
    }
  }
  return ports;
}

inline void expect_right(Communicator& c, size_t count) {
  SCOPED_TRACE(testing::Message() << "count " << count);
  const int n = c.size(), me = c.rank();
  const size_t all = count * static_cast<size_t>(n), mine = count * static_cast<size_t>(me);
  const Floats in = elements(me, 0, count), wide = elements(me, 0, all);
  Floats out(count, -1);
  c.all_reduce(in.data(), out.data(), count, kFloat, RedOp::sum);
  EXPECT_EQ(out, sums(n, 0, count)) << "all_reduce";
  out = in;
  c.all_reduce(out.data(), out.data(), count, kFloat, RedOp::sum);
  EXPECT_EQ(out, sums(n, 0, count)) << "all_reduce in place";
  c.reduce_scatter(wide.data(), out.data(), count, kFloat, RedOp::sum);
  EXPECT_EQ(out, sums(n, mine, count)) << "reduce_scatter";
  c.broadcast(in.data(), out.data(), count, kFloat, n - 1);
  EXPECT_EQ(out, elements(n - 1, 0, count)) << "broadcast";
  c.reduce(in.data(), out.data(), count, kFloat, RedOp::sum, 0);
  EXPECT_EQ(out, me == 0 ? sums(n, 0, count) : elements(n - 1, 0, count)) << "reduce";
  Floats gathered(all, -1), expected;
  c.all_gather(in.data(), gathered.data(), count, kFloat);
  for (int r = 0; r < n; ++r) append(expected, elements(r, 0, count));
  EXPECT_EQ(gathered, expected) << "all_gather";
  c.all_to_all(wide.data(), gathered.data(), count, kFloat);
  expected.clear();
  for (int r = 0; r < n; ++r) append(expected, elements(r, mine, count));
  EXPECT_EQ(gathered, expected) << "all_to_all";
  Floats received(count, -1);
  group_start();
  c.send(in.data(), count, kFloat, (me + 1) % n);
  c.recv(received.data(), count, kFloat, (me + n - 1) % n);
  group_end();
  EXPECT_EQ(received, elements((me + n - 1) % n, 0, count)) << "send and recv";
}

}  // namespace muster::test
