// The mesh: its arithmetic for clusters of any size, and communicators along its axes.
#include "muster/mesh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <numeric>
#include <set>

#include "parallel/nvlink_domains.h"
#include "support/outcome.h"
#include "support/ranks.h"
#include "topology/host_description.h"

namespace muster {
namespace {

using test::outcome_of;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string refused(const std::string& text) {
  const auto o = outcome_of([&] { Mesh::parse(text); });
  EXPECT_EQ(o.code, Result::invalid_argument) << text;
  return o.text;
}

std::vector<int> domains_of(int ranks, int each) {
  std::vector<int> d(static_cast<size_t>(ranks));
  for (int r = 0; r < ranks; ++r) d[static_cast<size_t>(r)] = r / each;
  return d;
}

TEST(Mesh, ReadsAndWritesText) {
  const Mesh m = Mesh::parse(" tp = 8, pp=16 ,dp=128 ");
  EXPECT_EQ(m.text(), "tp=8,pp=16,dp=128");
  EXPECT_EQ(m.size(), 16384);
  EXPECT_EQ(Mesh::parse(m.text()), m);
  EXPECT_EQ(Mesh({{"dp", 3}, {"tp", 2}}).text(), "dp=3,tp=2");  // the user's order stays
}

TEST(Mesh, BadTextIsRefused) {
  for (const char* text : {"", "tp", "tp=", "=4", "tp=4,", "tp=x", "tp=-2", "tp=2.5", "tp=4;dp=2", "t p=4", "tp=99999999999"})
    EXPECT_THAT(refused(text), HasSubstr(text[0] == 0 ? "tp=8" : "mesh")) << text;
  EXPECT_THAT(refused("tp=0"), HasSubstr("size 0"));
  EXPECT_THAT(refused("tp=4,tp=2"), HasSubstr("two axes named tp"));
  EXPECT_THAT(refused("a=65536,b=65536"), HasSubstr("2147483647"));
  EXPECT_THAT(outcome_of([] { Mesh({}); }).text, HasSubstr("at least one axis"));
}

TEST(Mesh, FirstAxisIsInnermost) {
  const Mesh m = Mesh::parse("tp=2,pp=3,dp=2");
  EXPECT_THAT(m.coordinates(7), ElementsAre(1, 0, 1));
  EXPECT_THAT(m.group(7, "tp"), ElementsAre(6, 7));
  EXPECT_THAT(m.group(7, "pp"), ElementsAre(7, 9, 11));
  EXPECT_THAT(m.group(7, "dp"), ElementsAre(1, 7));
  EXPECT_THAT(m.group(7, "tp+dp"), ElementsAre(0, 1, 6, 7));
  EXPECT_THAT(m.group(7, "dp+tp"), ElementsAre(0, 1, 6, 7));
  EXPECT_THAT(m.group(7, "cp"), ElementsAre(7));  // an axis of size 1
  EXPECT_EQ(m.size("tp+dp"), 4);
  EXPECT_EQ(m.neighbour(7, "pp", 1), 9);
  EXPECT_EQ(m.neighbour(7, "pp", -1), 11);
  EXPECT_EQ(m.neighbour(7, "dp", 1), 1);
  EXPECT_THAT(outcome_of([&] { m.group(7, "xp"); }).text, HasSubstr("no axis \"xp\""));
  EXPECT_THAT(outcome_of([&] { m.coordinates(12); }).text, HasSubstr("0 to 11"));
  const std::vector<int> bad = {0, 3, 0}, few = {0, 1};
  EXPECT_THAT(outcome_of([&] { (void)m.rank(bad); }).text, HasSubstr("Coordinate 3 on axis pp"));
  EXPECT_THAT(outcome_of([&] { (void)m.rank(few); }).text, HasSubstr("2 coordinates"));
}

// Each combination of axes cuts the ranks into groups: every rank in one, at its place, led by the smallest.
TEST(Mesh, GroupsPartitionTheRanks) {
  for (const char* text : {"tp=8,pp=16,dp=128", "tp=8,cp=2,ep=4,pp=5,dp=3", "dp=7,tp=3", "dp=1"}) {
    const Mesh m = Mesh::parse(text);
    for (const char* axes : {"tp", "pp", "dp", "cp+dp", "tp+dp", "tp+pp", "tp+cp+ep+pp+dp"}) {
      std::vector<int> seen(static_cast<size_t>(m.size()), 0);
      for (int r = 0; r < m.size(); ++r) {
        if (m.group_leader(r, axes) != r) continue;
        const std::vector<int> g = m.group(r, axes);
        ASSERT_EQ(static_cast<int>(g.size()), m.size(axes)) << text << " " << axes;
        ASSERT_TRUE(std::is_sorted(g.begin(), g.end()));
        for (size_t i = 0; i < g.size(); ++i) {
          ++seen[static_cast<size_t>(g[i])];
          ASSERT_EQ(m.group_rank(g[i], axes), static_cast<int>(i)) << text << " " << axes;
          ASSERT_EQ(m.group_leader(g[i], axes), r);
          ASSERT_EQ(m.rank(m.coordinates(g[i])), g[i]);
        }
      }
      for (const int times : seen) ASSERT_EQ(times, 1) << text << " " << axes;
    }
  }
}

// The layout of Llama 3 405B's training: 8 x 16 x 128 on hosts of 8.
TEST(Mesh, TensorParallelismStaysInsideHosts) {
  const Mesh m = Mesh::parse("tp=8,pp=16,dp=128");
  const std::vector<int> hosts = domains_of(m.size(), 8);
  const MeshPlacement tp = place(m, "tp", hosts), pp = place(m, "pp", hosts), dp = place(m, "dp", hosts);
  EXPECT_EQ(tp.groups, 2048);
  EXPECT_EQ(tp.groups_apart, 0);
  EXPECT_EQ(pp.groups, 1024);
  EXPECT_EQ(pp.groups_apart, 1024);
  EXPECT_EQ(pp.most_domains, 16);
  EXPECT_EQ(dp.most_domains, 128);
  EXPECT_THAT(placement_warnings(m, hosts), IsEmpty());
}

TEST(Mesh, LeavingAHostIsSaid) {
  const auto wide = placement_warnings(Mesh::parse("tp=16,dp=2"), domains_of(32, 8));
  ASSERT_EQ(wide.size(), 1u);
  EXPECT_THAT(wide[0], HasSubstr("2 of 2 tensor-parallel groups leave"));
  EXPECT_THAT(wide[0], HasSubstr("ranks 0 to 15"));
  EXPECT_THAT(wide[0], HasSubstr("divides the ranks of a domain"));
  const auto outside = placement_warnings(Mesh::parse("dp=8,tp=4"), domains_of(32, 8));
  ASSERT_EQ(outside.size(), 1u);
  EXPECT_THAT(outside[0], HasSubstr("Name tp first"));
  // 6 doesn't divide 8: some groups fit, some don't.
  EXPECT_THAT(placement_warnings(Mesh::parse("tp=6,dp=4"), domains_of(24, 8)).at(0), HasSubstr("2 of 4"));
  EXPECT_THAT(outcome_of([] { place(Mesh::parse("tp=2"), "tp", domains_of(3, 1)); }).text, HasSubstr("3 domains"));
}

TEST(Mesh, NvlinkDomainsOfClusters) {
  topology::Cluster c = topology::cluster_of(*topology::ready_host("dgx-h100"));
  c.hosts[0].count = 4;
  EXPECT_EQ(nvlink_domains(c), domains_of(32, 8));
  c.fabric.hosts_per_nvlink_domain = 2;
  EXPECT_EQ(nvlink_domains(c), domains_of(32, 16));
  // Two pairs of joined GPUs in one host: tp=4 fits the host, not its NVLinks.
  topology::HostDescription d;
  d.gpus = 4;
  d.gpu = "H100";
  d.sm = 90;
  d.nvlink_pairs = {{0, 1, 4}, {2, 3, 4}};
  const auto pairs = nvlink_domains(topology::cluster_of(topology::build_host(d, "pairs")));
  EXPECT_THAT(pairs, ElementsAre(0, 0, 1, 1));
  EXPECT_EQ(placement_warnings(Mesh::parse("tp=4"), pairs).size(), 1u);
  EXPECT_THAT(placement_warnings(Mesh::parse("tp=2,dp=2"), pairs), IsEmpty());
}

// Each communicator adds up the ranks of its group, and nobody else's.
void sums_along_axes(Communicator& world, int rank) {
  const Mesh mesh = Mesh::parse("tp=2,pp=2,dp=2");
  // Groups in another order on each rank, to show that it doesn't matter.
  std::vector<std::string> groups = {"tp", "pp", "dp", "dp+tp", "pp+dp", "cp", "tp+pp+dp"};
  std::rotate(groups.begin(), groups.begin() + rank % static_cast<int>(groups.size()), groups.end());
  MeshCommunicators comms(world, mesh, groups);
  EXPECT_EQ(comms.rank(), rank);
  for (const std::string axes : {"tp", "pp", "dp", "tp+dp", "dp+pp", "cp", "dp+pp+tp"}) {
    const std::vector<int> members = mesh.group(rank, axes);
    Communicator& c = comms[axes];
    ASSERT_EQ(c.size(), static_cast<int>(members.size())) << axes;
    EXPECT_EQ(c.rank(), mesh.group_rank(rank, axes));
    const int64_t mine = 1 << rank;
    int64_t sum = 0;
    c.all_reduce(&mine, &sum, 1, DataType::int64, RedOp::sum);
    int64_t want = 0;
    for (const int m : members) want += 1 << m;
    EXPECT_EQ(sum, want) << axes << " on rank " << rank;
  }
  EXPECT_THAT(outcome_of([&] { comms["tp+pp"]; }).text, HasSubstr("No communicator was made along \"tp+pp\""));
  EXPECT_THAT(comms.warnings(), IsEmpty());
}
TEST(MeshCommunicators, SumAlongAxes) { test::run_threads(8, sums_along_axes); }
TEST(MeshCommunicators, SumAlongAxesBetweenProcesses) { test::run_process_ranks(8, sums_along_axes); }

TEST(MeshCommunicators, DifferentMeshesAreFoundByAllRanks) {
  test::run_threads(4, [](Communicator& world, int rank) {
    const auto o = outcome_of([&] { MeshCommunicators(world, Mesh::parse(rank == 2 ? "tp=4" : "tp=2,dp=2")); });
    EXPECT_EQ(o.code, Result::invalid_usage);
    EXPECT_THAT(o.text, HasSubstr("Ranks 0 and 2 gave different meshes"));
    const auto wrong = outcome_of([&] { MeshCommunicators(world, Mesh::parse("tp=3")); });
    EXPECT_EQ(wrong.code, Result::invalid_argument);
    EXPECT_THAT(wrong.text, HasSubstr("has 3 ranks"));
    MeshCommunicators good(world, Mesh::parse("tp=2,dp=2"));  // and the world is as it was
    EXPECT_EQ(good["dp"].size(), 2);
  });
}

// Of hosts with a GPU per rank; of others the ranks are in one domain.
TEST(Mesh, NvlinkDomainsOfRanks) {
  topology::HostDescription d;
  d.gpus = 4;
  d.gpu = "H100";
  d.sm = 90;
  d.nvlink_pairs = {{0, 1, 4}, {2, 3, 4}};
  topology::Cluster c = topology::cluster_of(topology::build_host(d, "pairs"));
  c.hosts[0].count = 3;
  const std::vector<int> host_of = {0, 1, 0, 1, 0, 1, 0, 1, 2, 2};
  const std::vector<int> got = nvlink_domains_of_ranks(c, host_of);
  EXPECT_THAT(got, ElementsAre(0, 2, 0, 2, 1, 3, 1, 3, got[8], got[8]));
  EXPECT_GT(got[8], 3);
}

// Two pairs of GPUs in one host.
TEST(MeshCommunicators, LeavingNvlinkIsSaid) {
  const std::string file = testing::TempDir() + "muster_mesh_pairs.txt";
  std::ofstream(file) << "\tGPU0\tGPU1\tGPU2\tGPU3\n"
                         "GPU0\t X \tNV4\tSYS\tSYS\n"
                         "GPU1\tNV4\t X \tSYS\tSYS\n"
                         "GPU2\tSYS\tSYS\t X \tNV4\n"
                         "GPU3\tSYS\tSYS\tNV4\t X \n";
  const test::Variable topology("NCCL_TOPO_FILE", file);
  test::run_threads(4, [](Communicator& world, int) {
    const MeshCommunicators wide(world, Mesh::parse("tp=4"));
    ASSERT_EQ(wide.warnings().size(), 1u);
    EXPECT_THAT(wide.warnings()[0], HasSubstr("1 of 1 tensor-parallel groups leave"));
    EXPECT_THAT(MeshCommunicators(world, Mesh::parse("tp=2,dp=2")).warnings(), IsEmpty());
    Communicator backwards = world.split(0, -world.rank());
    EXPECT_THAT(MeshCommunicators(backwards, Mesh::parse("tp=2,dp=2")).warnings(), IsEmpty());
    Communicator near = world.split(world.rank() / 2, 0), far = world.split(world.rank() % 2, 0);
    EXPECT_THAT(MeshCommunicators(near, Mesh::parse("tp=2")).warnings(), IsEmpty());
    EXPECT_EQ(MeshCommunicators(far, Mesh::parse("tp=2")).warnings().size(), 1u);
  });
  std::remove(file.c_str());
}

TEST(MeshCommunicators, PlacementIsChecked) {
  test::run_threads(4, [](Communicator& world, int) {
    const std::vector<int> pairs = {0, 0, 1, 1};
    EXPECT_EQ(MeshCommunicators(world, Mesh::parse("tp=4"), {}, pairs).warnings().size(), 1u);
    EXPECT_THAT(MeshCommunicators(world, Mesh::parse("tp=2,dp=2"), {}, pairs).warnings(), IsEmpty());
  });
}

}  // namespace
}  // namespace muster
