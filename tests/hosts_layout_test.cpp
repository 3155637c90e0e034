// Hosts that differ, in ranks and in what they are made of: all ranks plan alike, whatever each host is told
// about itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "hosts_support.h"
#include "muster/muster.h"
#include "support/needs_network.h"
#include "support/outcome.h"
#include "support/processes.h"
#include "topology/host_description.h"
#include "topology/nccl_xml.h"

namespace muster {
namespace {

using namespace test;  // NOLINT

// Topology files for NCCL_TOPO_FILE, of hosts that are known by name. Gone with the scope of the process that
// made them.
class TopologyFiles {
 public:
  explicit TopologyFiles(const std::vector<const char*>& hosts)
      : folder_(testing::TempDir() + "muster_hosts_layout"), mine_(!is_rank_process()) {
    if (!mine_) return;
    std::filesystem::create_directories(folder_);
    for (const char* host : hosts)
      std::ofstream(path(host)) << topology::write_nccl_xml(topology::ready_host(host).value());
  }
  ~TopologyFiles() {
    if (mine_) std::filesystem::remove_all(folder_);
  }
  TopologyFiles(const TopologyFiles&) = delete;
  TopologyFiles& operator=(const TopologyFiles&) = delete;
  std::string path(const char* host) const { return folder_ + "/" + host + ".xml"; }

 private:
  const std::string folder_;
  const bool mine_;
};

// What each call would be done by, and why, is the same text everywhere.
void expect_same_plans(Communicator& c) {
  for (const char* collective :
       {"all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "all_to_all"})
    for (const size_t count : {1, 1000, 1 << 20}) {
      const std::string text = c.explain(collective, count, kFloat);
      const uint64_t mine = std::hash<std::string>()(text);
      std::vector<uint64_t> all(static_cast<size_t>(c.size()));
      c.all_gather(&mine, all.data(), 1, DataType::uint64);
      EXPECT_THAT(all, testing::Each(mine)) << "rank " << c.rank() << ": " << text;
    }
}

// `ranks` of each host, host by host. The second host is told that it is of another kind, which is one known
// by name.
void expect_agreement(const std::vector<int>& ranks) {
  NEED_NETWORK();
  const TopologyFiles files({"dgx-h100"});
  std::vector<int> host_of;
  for (size_t host = 0; host < ranks.size(); ++host)
    host_of.insert(host_of.end(), static_cast<size_t>(ranks[host]), static_cast<int>(host));
  run_processes(static_cast<int>(host_of.size()), [&](int rank) {
    const int host = host_of[static_cast<size_t>(rank)];
    const Variable identity("NCCL_HOSTID", "host" + std::to_string(host));
    const Variable file("NCCL_TOPO_FILE", host == 1 ? std::optional(files.path("dgx-h100")) : std::nullopt);
    Communicator c = Communicator::from_environment();
    expect_same_plans(c);
    for (const size_t count : {1, 3001}) expect_right(c, count);
    c.destroy();
  });
}

TEST(HostsLayout, TwentySevenRanksOfFourHosts) { expect_agreement({7, 7, 7, 6}); }
TEST(HostsLayout, TheLastHostHasFewRanks) { expect_agreement({8, 8, 8, 3}); }

}  // namespace
}  // namespace muster
