// Predictions beside measurements that others published: for each table of nccl-tests output whose machine is
// known, the error of every cell. docs/validation.md shows what this prints.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "plan/prediction.h"
#include "support/corpus.h"
#include "topology/read.h"

namespace muster {
namespace {

std::filesystem::path folder() { return test::corpus() / "perf-tables"; }

struct Cell {
  double bytes = 0, us = 0;
};

// Lines of nccl-tests: size, count, type, perhaps an operator and a root, then time, algbw and busbw out of
// place.
std::vector<Cell> read_table(const std::filesystem::path& file) {
  std::vector<Cell> cells;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    double size = 0, count = 0;
    std::string type, word;
    if (!(words >> size >> count >> type)) continue;
    std::vector<std::string> rest;
    while (words >> word) rest.push_back(word);
    size_t at = 0;
    if (at < rest.size() && (rest[at] == "sum" || rest[at] == "none")) ++at;
    // A root is a whole number, a time has a point, or is long and nothing but three or four numbers follow.
    if (rest.size() >= at + 9 || (rest.size() == at + 5 && rest[at].find('.') == std::string::npos)) ++at;
    if (at >= rest.size()) continue;
    const double us = std::atof(rest[at].c_str());
    if (size > 0 && us > 1) cells.push_back({size, us});
  }
  return cells;
}

constexpr const char* kA100Pcie =
    R"({"gpus": 8, "gpu": "A100", "numa_nodes": 2, "cpu": "epyc", "pci_generation": 4, "gpus_per_pci_switch": 2})";
constexpr const char* kA100PcieSwitch =
    R"({"gpus": 2, "gpu": "A100", "numa_nodes": 1, "cpu": "epyc", "pci_generation": 4, "gpus_per_pci_switch": 2})";
constexpr const char* kA6000 = "nccl-topo/yccl-4xA6000-2socket.xml";
constexpr const char* kGh200 =
    R"({"gpus": 4, "gpu": "GH200", "sm": 90, "nvlinks_per_gpu": 18, "c2c": true, "nics": 4, "network": "ethernet", "gbit_per_s": 200, "numa_nodes": 4, "cpu": "arm", "pci_generation": 5})";
constexpr const char* kPerlmutter =
    R"({"gpus": 4, "gpu": "A100", "nvlinks_per_gpu": 12, "nics": 4, "network": "ethernet", "gbit_per_s": 200, "numa_nodes": 4, "packages": 1, "cpu": "epyc", "pci_generation": 4})";
constexpr const char* kPolaris =
    R"({"gpus": 4, "gpu": "A100", "nvlinks_per_gpu": 12, "nics": 2, "network": "ethernet", "gbit_per_s": 200, "numa_nodes": 4, "packages": 1, "cpu": "epyc", "pci_generation": 4})";
constexpr const char* kA3Mega =
    R"({"gpus": 8, "gpu": "H100", "nvswitches": 4, "nvlinks_per_gpu": 18, "nics": 8, "network": "ethernet", "gbit_per_s": 200, "numa_nodes": 2, "cpu": "sapphire-rapids", "pci_generation": 5, "gpus_per_pci_switch": 1})";

struct Measured {
  const char* file;
  const char* host;  // the name of a ready host, a description, or a real file
  int hosts, gpus;   // used of each host
  Coll coll;
  int per_thread;  // GPUs that a thread launches for, as the table's head says
  bool fitted;     // constants were fitted to it: no test
};

const Measured kMeasured[] = {
    {"8xA100-SXM4-all_reduce-superbench", "dgx-a100", 1, 8, Coll::all_reduce, 8, true},
    {"8xA100-SXM4-allgather-superbench", "dgx-a100", 1, 8, Coll::all_gather, 8, false},
    {"8xA100-SXM4-broadcast-superbench", "dgx-a100", 1, 8, Coll::broadcast, 8, false},
    {"8xA100-SXM4-reduce-superbench", "dgx-a100", 1, 8, Coll::reduce, 8, false},
    {"8xV100-SXM2-all_reduce", "dgx-1v", 1, 8, Coll::all_reduce, 1, true},
    {"8xH100-DGX-all_reduce-dgxc", "dgx-h100", 1, 8, Coll::all_reduce, 1, false},
    {"wayne-4of8xH100-all_reduce", "dgx-h100", 1, 4, Coll::all_reduce, 4, true},
    {"wayne-4of8xH100-all_gather", "dgx-h100", 1, 4, Coll::all_gather, 4, false},
    {"wayne-4of8xH100-reduce_scatter", "dgx-h100", 1, 4, Coll::reduce_scatter, 4, false},
    {"xxrjun-1nx4H100-all_reduce", "dgx-h100", 1, 4, Coll::all_reduce, 1, false},
    {"xxrjun-1nx4H100-all_gather", "dgx-h100", 1, 4, Coll::all_gather, 1, false},
    {"xxrjun-1nx4H100-reduce_scatter", "dgx-h100", 1, 4, Coll::reduce_scatter, 1, false},
    {"xxrjun-1nx4H100-alltoall", "dgx-h100", 1, 4, Coll::all_to_all, 1, false},
    {"xxrjun-1nx8H100-all_reduce", "dgx-h100", 1, 8, Coll::all_reduce, 1, false},
    {"xxrjun-1nx8H100-all_gather", "dgx-h100", 1, 8, Coll::all_gather, 1, false},
    {"xxrjun-1nx8H100-reduce_scatter", "dgx-h100", 1, 8, Coll::reduce_scatter, 1, false},
    {"xxrjun-1nx8H100-alltoall", "dgx-h100", 1, 8, Coll::all_to_all, 1, false},
    {"2xA100PCIe-same-external-switch-all_reduce", kA100PcieSwitch, 1, 2, Coll::all_reduce, 2, true},
    {"8xA100-PCIE-40GB-all_reduce", kA100Pcie, 1, 8, Coll::all_reduce, 1, true},
    {"4xA6000-pcie-all_reduce", kA6000, 1, 4, Coll::all_reduce, 4, false},
    {"alps-001nx4GH200-slingshot-all_reduce", kGh200, 1, 4, Coll::all_reduce, 1, false},
    {"alps-002nx4GH200-slingshot-all_reduce", kGh200, 2, 4, Coll::all_reduce, 1, true},
    {"alps-004nx4GH200-slingshot-all_reduce", kGh200, 4, 4, Coll::all_reduce, 1, false},
    {"alps-008nx4GH200-slingshot-all_reduce", kGh200, 8, 4, Coll::all_reduce, 1, false},
    {"alps-016nx4GH200-slingshot-all_reduce", kGh200, 16, 4, Coll::all_reduce, 1, false},
    {"alps-2nx4GH200-latency-cxi-hook", kGh200, 2, 4, Coll::all_reduce, 1, false},
    {"perlmutter-2nx4A100-slingshot-all_reduce", kPerlmutter, 2, 4, Coll::all_reduce, 1, true},
    {"polaris-2nx4A100-slingshot-all_reduce-cfg5", kPolaris, 2, 4, Coll::all_reduce, 1, false},
    {"polaris-2nx4A100-slingshot-all_gather-cfg5", kPolaris, 2, 4, Coll::all_gather, 1, false},
    {"azure-2nx8A100-ndv4-ib-all_reduce", "dgx-a100", 2, 8, Coll::all_reduce, 1, true},
    {"dgxa100-2n-8HDR-all_reduce-deepops", "dgx-a100", 2, 8, Coll::all_reduce, 1, false},
    {"nebius-dstack-2nx8H100-all_reduce", "dgx-h100", 2, 8, Coll::all_reduce, 1, true},
    {"oci-2nx8H100-all_reduce", "dgx-h100", 2, 8, Coll::all_reduce, 1, false},
    {"gcp-a3mega-2nx8H100-all_gather", kA3Mega, 2, 8, Coll::all_gather, 1, false},
    {"gcp-a3mega-2nx8H100-all_gather-dstack", kA3Mega, 2, 8, Coll::all_gather, 1, false},
};

Links links_of(const Measured& m) {
  const std::string_view name = m.host;
  const std::string host = name.ends_with(".xml")
                               ? fmt::format("\"file\": \"{}\"", (test::corpus() / name).string())
                           : name[0] == '{' ? fmt::format("\"host\": {}", m.host)
                                            : fmt::format("\"ready\": \"{}\"", m.host);
  const topology::Cluster c = topology::read_topology(
      fmt::format(R"({{"muster_cluster": 1, "hosts": [{{"count": {}, "name": "node", {}}}]}})", m.hosts,
                  host),
      m.file);
  std::vector<RankPlace> places;
  for (int h = 0; h < m.hosts; ++h)
    for (int g = 0; g < m.gpus; ++g) places.push_back({h, g});
  return muster::links_of(c, places);
}

double median(std::vector<double> v) {
  if (v.empty()) return std::nan("");
  std::sort(v.begin(), v.end());
  return v.size() % 2 ? v[v.size() / 2] : (v[v.size() / 2 - 1] + v[v.size() / 2]) / 2;
}

// What NCCL, whose measurements these are, chooses from: rings, pairwise exchange, sums in the switch, and
// double trees of hosts with a chain of GPUs in each, which pass tiles on while the next come. Muster's own
// trees share the data out inside hosts.
struct Choice {
  std::string name;
  Protocol protocol = Protocol::simple;
  double us = 0;
};

Work chain_and_tree(const Spread& s, double data) {
  const double n = s.ranks, depth = std::ceil(std::log2(s.hosts));
  Work w;
  w.flows = w.tree = true;
  w.near_rounds = 2 * (s.per_host - 1);
  w.far_rounds = 2 * depth;
  w.near_bytes = 2 * (n - 1) / n * data;
  w.far_bytes = (s.hosts > 2 ? 2 : 1) * data;
  return w;
}

Choice what_nccl_does(const Prediction& p, const PredictOptions& options) {
  Choice best;
  const auto consider = [&](const std::string& name, Protocol protocol, double us) {
    if (best.name.empty() || us < best.us) best = {name, protocol, us};
  };
  for (const Candidate& c : p.candidates) {
    const bool nccl_has_it = c.algorithm == "ring" || c.algorithm == "chain" || c.algorithm == "pairwise" ||
                             c.algorithm == "in_switch";
    if (!nccl_has_it || (!c.obstacle.empty() && c.known)) continue;
    if (c.algorithm == "in_switch" && p.links.spread.per_host < 8)
      continue;  // NCCL's logs of 4 GPUs show rings
    consider(c.algorithm, c.protocol, c.price.us());
  }
  if (p.call.coll == Coll::all_reduce && p.links.spread.hosts > 1)
    for (const Protocol protocol : kProtocols)
      consider("tree", protocol,
               gpu_price(chain_and_tree(p.links.spread, p.data_bytes), p.links, protocol,
                         Constants::built_in(), options.per_thread)
                   .us());
  return best;
}

TEST(Validation, PublishedGpuTables) {
  MUSTER_NEEDS_CORPUS();
  std::vector<double> large, small;  // of tables that nothing was fitted to
  std::string report;
  const char* const show = std::getenv("MUSTER_VALIDATION_SHOW");
  for (const Measured& m : kMeasured) {
    const std::vector<Cell> cells = read_table(folder() / (std::string(m.file) + ".txt"));
    ASSERT_FALSE(cells.empty()) << m.file;
    const Links links = links_of(m);
    std::vector<double> l, s;
    std::string rows;
    for (const Cell& cell : cells) {
      CallShape call{m.coll, DataType::float32, RedOp::sum, 0, 1};
      call.count = count_of(call, static_cast<uint64_t>(cell.bytes), links.spread.ranks);
      PredictOptions options;
      options.per_thread = m.per_thread;
      const Prediction p = predict(call, links, Constants::built_in(), options);
      const Choice c = what_nccl_does(p, options);
      const double error = c.us / cell.us - 1;
      (cell.bytes >= 1 << 20 ? l : s).push_back(std::abs(error));
      rows += fmt::format("    {:>12.0f} B {:>10.1f} us measured {:>10.1f} predicted {:>+5.0f} %  {} {}\n",
                          cell.bytes, cell.us, c.us, 100 * error, c.name, name_of(c.protocol));
    }
    if (!m.fitted) {
      large.insert(large.end(), l.begin(), l.end());
      small.insert(small.end(), s.begin(), s.end());
    }
    report += fmt::format("{:<46} {:>3} cells from 1 MiB: {:>4.0f} %   {:>3} below: {:>4.0f} %{}\n", m.file,
                          l.size(), 100 * median(l), s.size(), 100 * median(s), m.fitted ? "   fitted" : "");
    if (show && std::string(m.file).find(show) != std::string::npos) report += rows;
  }
  report += fmt::format(
      "tables that nothing was fitted to: median error {:.1f} % from 1 MiB up ({} cells), {:.1f} % below ({} "
      "cells)\n",
      100 * median(large), large.size(), 100 * median(small), small.size());
  std::printf("%s", report.c_str());
  EXPECT_LE(median(large), 0.10);
  EXPECT_LE(median(small), 0.25);
}

// Numbers that S. Bekman publishes (github.com/stas00/ml-engineering, network/benchmarks): all_reduce, NCCL.
TEST(Validation, TablesOfMlEngineering) {
  struct Table {
    const char* name;
    const char* host;
    std::vector<Cell> cells;  // bytes, and microseconds or, of the second, GB/s busbw
    bool busbw;
  };
  constexpr double k = 1 << 10, m = 1 << 20, g = 1 << 30;
  const Table tables[] = {
      {"8 A100",
       "dgx-a100",
       {{32 * k, 43.8},
        {m, 101.9},
        {2 * m, 101.4},
        {4 * m, 101.5},
        {8 * m, 133.5},
        {16 * m, 276.6},
        {32 * m, 424},
        {64 * m, 684.6},
        {128 * m, 1327.6},
        {256 * m, 2420.6},
        {512 * m, 4218},
        {g, 8204},
        {4 * g, 32136},
        {16 * g, 127997}},
       false},
      {"8 H200",
       "hgx-h200",
       {{32 * k, 1.44},   {64 * k, 2.93},   {128 * k, 5.73},   {256 * k, 11.74},  {512 * k, 23.94},
        {m, 39.93},       {2 * m, 64.53},   {4 * m, 107.16},   {8 * m, 155.53},   {16 * m, 219.89},
        {32 * m, 275.84}, {64 * m, 346.51}, {128 * m, 401.93}, {256 * m, 436.15}, {512 * m, 450.29},
        {g, 463.58},      {2 * g, 469.17},  {4 * g, 473.10},   {8 * g, 477.45},   {16 * g, 482.26}},
       true},
  };
  for (const Table& t : tables) {
    const Links links = links_of({t.name, t.host, 1, 8, Coll::all_reduce, 1, false});
    std::vector<double> large;
    for (const Cell& cell : t.cells) {
      const double us = t.busbw ? bus_factor(Coll::all_reduce, 8) * cell.bytes / cell.us / 1e3 : cell.us;
      CallShape call{Coll::all_reduce, DataType::float32, RedOp::sum, 0, 1};
      call.count = count_of(call, static_cast<uint64_t>(cell.bytes), 8);
      PredictOptions options;
      options.per_thread = 8;  // run with -g 8
      const double predicted =
          what_nccl_does(predict(call, links, Constants::built_in(), options), options).us;
      if (cell.bytes >= m) large.push_back(std::abs(predicted / us - 1));
      if (std::getenv("MUSTER_VALIDATION_SHOW"))
        std::printf("%s %12.0f B %9.1f us measured %9.1f predicted\n", t.name, cell.bytes, us, predicted);
    }
    std::printf("%s: median error %.1f %% from 1 MiB up (%zu sizes)\n", t.name, 100 * median(large),
                large.size());
    EXPECT_LE(median(large), 0.10) << t.name;
  }
}

}  // namespace
}  // namespace muster
