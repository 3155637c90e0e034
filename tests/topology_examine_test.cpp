// What follows from a machine's model: findings, and how tree, picture and paths are said.
#include "topology/examine.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <locale>

#include "topology/cluster_file.h"
#include "topology/dot.h"
#include "topology/explain.h"
#include "topology/host_description.h"
#include "topology/json.h"
#include "topology/tree.h"

namespace muster::topology {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

Machine host(const std::string& json) {
  const JsonDocument d(json, "host");
  return build_host(read_host_description(d, d.root()), "host");
}

const Finding* find(const std::vector<Finding>& all, std::string_view id, std::string_view where = {}) {
  for (const Finding& f : all)
    if (f.id == id && (where.empty() || f.where == where)) return &f;
  return nullptr;
}

std::string ids(const std::vector<Finding>& all) {
  std::string text;
  for (const Finding& f : all) text += f.id + " ";
  return text;
}

// An 8-GPU server with one card on the first of two processors, PCIe 4.0: UPI of Skylake carries 10 GB/s.
constexpr const char* kOneCard =
    R"({"gpus": 4, "gpu": "A100", "nics": 1, "network": "infiniband", "gbit_per_s": 200, "numa_nodes": 2, "cpu": "skylake",
                                     "pci_generation": 4, "gpus_per_pci_switch": 2})";

TEST(Examine, ReadyHostsAreAsIntended) {
  for (const ReadyHost& r : ready_hosts())
    for (const Finding& f : all_findings(*ready_host(r.name)))
      EXPECT_EQ(f.severity, Severity::note) << r.name << ": " << f.id << ": " << f.text;
  EXPECT_EQ(ids(examine(*ready_host("dgx-h100"))), "");
}

TEST(Examine, PortsAcrossTheCpuInterconnect) {
  const std::vector<Finding> all = examine(host(kOneCard));
  const Finding* f = find(all, "nic-across-cpus", "GPU2");
  ASSERT_TRUE(f) << ids(all);
  EXPECT_EQ(f->text,
            "GPU2 reaches NIC mlx5_0 only through the CPU interconnect (SYS): expect at most 10 GB/s");
  EXPECT_FALSE(f->remedy.empty());
  EXPECT_TRUE(find(all, "nic-across-cpus", "GPU3"));
  EXPECT_FALSE(find(all, "nic-across-cpus", "GPU1"));
  // 25 GB/s among 4.
  const Finding* shared = find(all, "shared-port", "mlx5_0");
  ASSERT_TRUE(shared);
  EXPECT_EQ(shared->text, "4 GPUs share mlx5_0: 6.25 GB/s each when all send (GPU0, GPU1, GPU2, GPU3)");
  const Finding* cpus = find(all, "gpus-across-cpus");
  ASSERT_TRUE(cpus);
  EXPECT_THAT(cpus->text, HasSubstr("4 pairs of GPUs"));
}

TEST(Examine, Nvlinks) {
  EXPECT_EQ(
      find(examine(host(R"({"gpus": 3, "gpu": "A100", "nvlink_pairs": [[0,1,12]]})")), "some-without-nvlink")
          ->severity,
      Severity::note);
  const auto uneven = examine(host(R"({"gpus": 3, "gpu": "A100", "nvlink_pairs": [[0,1,2],[1,2,2]]})"));
  const Finding* f = find(uneven, "uneven-nvlinks");
  ASSERT_TRUE(f);
  EXPECT_EQ(f->severity, Severity::note);
  EXPECT_EQ(f->text, "GPUs have different numbers of NVLinks: 2 links: GPU0, GPU2; 4 links: GPU1");
  EXPECT_FALSE(find(examine(host(R"({"gpus": 3, "gpu": "A100", "nvlinks_per_gpu": 12})")), "uneven-nvlinks"));
  // With NVSwitches it isn't by design.
  Machine m = *ready_host("dgx-h100");
  for (Link& l : m.links)
    if (l.kind == LinkKind::nvlink && (l.a == m.find("GPU5") || l.b == m.find("GPU5"))) l.count = 17;
  const auto broken = examine(m);
  ASSERT_TRUE(find(broken, "uneven-nvlinks"));
  EXPECT_EQ(find(broken, "uneven-nvlinks")->severity, Severity::warning);
}

TEST(Examine, PciLinks) {
  Machine m = host(
      R"({"gpus": 3, "gpu": "L40S", "pci_generation": 4, "nics": 1, "gbit_per_s": 100, "network": "roce"})");
  m[m.find("GPU1")].pci->lanes = 8;
  m[m.find("GPU2")].pci->gigatransfers = 2.5;
  m[m.find("GPU2")].pci->lanes = 1;
  const auto all = examine(m);
  const Finding* slow = find(all, "slow-pci-link");
  ASSERT_TRUE(slow) << ids(all);
  EXPECT_EQ(slow->text, "GPU1 has a PCI link of 16 GT/s x8, 12 GB/s, where others have 24 GB/s");
  const Finding* implausible = find(all, "implausible-pci-link");
  ASSERT_TRUE(implausible) << ids(all);
  EXPECT_EQ(implausible->where, "GPU2");
  EXPECT_THAT(implausible->text, HasSubstr("2.5 GT/s x1, 0.1875 GB/s"));
  EXPECT_THAT(implausible->remedy, HasSubstr("NCCL_TOPO_FILE"));
  EXPECT_TRUE(find(examine(host(R"({"gpus": 1})")), "unknown-pci-link"));
  // A card of 1 Gbit/s on a slow link is as it should be, as is a switch with nothing else below it.
  EXPECT_EQ(
      ids(examine(host(
          R"({"nics": 1, "network": "ethernet", "gbit_per_s": 1, "gpus_per_pci_switch": 1, "pci_generation": 1, "pci_lanes": 1})"))),
      "");
}

TEST(Examine, Ports) {
  // 400 Gbit/s are 50 GB/s; third generation x16 carries 12.
  const auto fast = examine(
      host(R"({"gpus": 1, "nics": 1, "network": "infiniband", "gbit_per_s": 400, "pci_generation": 3})"));
  const Finding* f = find(fast, "port-faster-than-pci", "mlx5_0");
  ASSERT_TRUE(f) << ids(fast);
  EXPECT_THAT(f->text, AllOf(HasSubstr("mlx5_0 could carry 50 GB/s"), HasSubstr("carries 12 GB/s")));
  EXPECT_EQ(f->severity, Severity::warning);
  EXPECT_FALSE(find(
      examine(
          host(R"({"gpus": 1, "nics": 1, "network": "infiniband", "gbit_per_s": 400, "pci_generation": 5})")),
      "port-faster-than-pci"));

  Machine down =
      host(R"({"gpus": 1, "nics": 2, "network": "infiniband", "gbit_per_s": 200, "pci_generation": 4})");
  std::get<Port>(down[down.find("mlx5_0")].detail).up = Answer3::no;
  EXPECT_EQ(find(examine(down), "port-down")->severity, Severity::note);
  std::get<Port>(down[down.find("mlx5_1")].detail).up = Answer3::no;
  EXPECT_EQ(find(examine(down), "port-down")->severity, Severity::warning);
  EXPECT_TRUE(find(examine(host(R"({"gpus": 1})")), "no-port"));
  EXPECT_TRUE(find(examine(host(R"({"nics": 1})")), "port-speed-unknown"));
}

TEST(Examine, HiddenGpusDontCount) {
  Machine m = host(kOneCard);
  for (const int g : m.all(Kind::gpu)) m[g].hidden = m.gpu(g).index >= 2;
  const auto all = examine(m);
  EXPECT_FALSE(find(all, "nic-across-cpus")) << ids(all);
  EXPECT_EQ(find(all, "shared-port")->text, "2 GPUs share mlx5_0: 12.5 GB/s each when all send (GPU0, GPU1)");
}

TEST(Examine, KindsOfGpus) {
  Machine m = host(R"({"gpus": 2, "gpu": "H100"})");
  std::get<Gpu>(m[m.find("GPU1")].detail).sm = 80;
  const auto all = examine(m);
  const Finding* f = find(all, "mixed-gpus");
  ASSERT_TRUE(f);
  EXPECT_EQ(f->text, "GPUs of several kinds: GPU1 (sm_80); GPU0 (sm_90)");
}

TEST(Examine, Clusters) {
  const auto of = [](const std::string& text) {
    return all_findings(read_cluster_file("{\"muster_cluster\": 1, " + text + "}", "c", {}));
  };
  EXPECT_EQ(ids(of(R"("hosts": [{"count": 4, "ready": "dgx-h100"}])")), "");
  EXPECT_TRUE(find(of(R"("hosts": [{"ready": "dgx-h100"}, {"ready": "gb200-nvl72"}])"), "uneven-hosts"));
  EXPECT_TRUE(find(of(R"("hosts": [{"ready": "dgx-h100"}, {"ready": "dgx-1v"}], "fabric": {"rails": true})"),
                   "uneven-rails"));
  EXPECT_TRUE(find(of(R"("hosts": [{"ready": "dgx-h100"}, {"ready": "dgx-1v"}])"), "mixed-port-speeds"));
  EXPECT_TRUE(find(
      of(R"("hosts": [{"count": 20, "ready": "gb200-nvl72"}], "fabric": {"hosts_per_nvlink_domain": 18})"),
      "partial-nvlink-domain"));
}

TEST(Examine, GravestFirstAndNoneTwice) {
  Machine m = host(kOneCard);
  m.findings = {{Severity::note, "a", "x", "t", ""},
                {Severity::error, "b", "x", "t", ""},
                {Severity::note, "a", "x", "t", ""},
                {Severity::warning, "c", "x", "t", ""}};
  const auto all = all_findings(m);
  EXPECT_THAT(ids(all), testing::StartsWith("b c a "));
  EXPECT_EQ(std::count_if(all.begin(), all.end(), [](const Finding& f) { return f.id == "a"; }), 1);
}

TEST(Examine, EveryFindingIsComplete) {
  for (const char* json :
       {kOneCard, "{}",
        R"({"gpus": 3, "nvlink_pairs": [[0,1,1]], "nics": 2, "pci_generation": 1, "pci_lanes": 1})"})
    for (const Finding& f : examine(host(json))) {
      EXPECT_FALSE(f.id.empty() || f.where.empty() || f.text.empty()) << f.id;
      EXPECT_TRUE(f.severity == Severity::note || !f.remedy.empty()) << f.id;
    }
}

TEST(Tree, ShowsWhatHangsUnderWhat) {
  EXPECT_EQ(tree(host(kOneCard)),
            "host: 4 x A100, 1 network port, 2 NUMA nodes\n"
            "NUMA0  package 0  GenuineIntel\n"
            "`- host bridge 0\n"
            "   `- PCI switch 0000:01:00.0  PCIe gen4 x16  24 GB/s\n"
            "      |- GPU0  A100  sm_80  0000:03:00.0  PCIe gen4 x16  24 GB/s\n"
            "      |- GPU1  A100  sm_80  0000:04:00.0  PCIe gen4 x16  24 GB/s\n"
            "      `- NIC 0000:07:00.0  PCIe gen4 x16  24 GB/s\n"
            "         `- mlx5_0  InfiniBand  200 Gbit/s (25 GB/s)\n"
            "NUMA1  package 1  GenuineIntel\n"
            "`- host bridge 1\n"
            "   `- PCI switch 0000:02:00.0  PCIe gen4 x16  24 GB/s\n"
            "      |- GPU2  A100  sm_80  0000:05:00.0  PCIe gen4 x16  24 GB/s\n"
            "      `- GPU3  A100  sm_80  0000:06:00.0  PCIe gen4 x16  24 GB/s\n"
            "Between NUMA nodes: 10 GB/s (1 pair)\n");
  EXPECT_THAT(tree(*ready_host("dgx-h100")), AllOf(HasSubstr("NVLink 18 links 370.8 GB/s"),
                                                   HasSubstr("NVSwitch: 4 chips, joining 8 GPUs\n")));
  EXPECT_THAT(tree(host(kOneCard), {.unicode = true}), HasSubstr("└─ host bridge 0"));
  EXPECT_THAT(tree(host(kOneCard), {.colour = true}), HasSubstr("\033[1;32mGPU0\033[0m"));
}

TEST(Tree, NamesDontTalkToTheTerminal) {
  Machine m = host("{}");
  m.name = "a\033[31m";
  m.add({.kind = Kind::gpu, .name = "x\033]0;title\a", .parent = 0, .detail = Gpu{.model = "\033[2J"}});
  complete(m);
  for (const std::string& text :
       {tree(m), write_dot(cluster_of(m)), list({{Severity::note, "i", "\033", "\033", "\033"}})})
    EXPECT_EQ(text.find('\033'), std::string::npos) << text;
}

TEST(Tree, OfAClusterSaysHowHostsReachEachOther) {
  const std::string text = tree(
      read_cluster_file(R"({"muster_cluster": 1, "hosts": [{"count": 64, "name": "n", "ready": "dgx-h100"}],
                                                      "fabric": {"rails": true, "hosts_per_leaf": 32, "oversubscription": 2}})",
                        "c", {}));
  EXPECT_THAT(text,
              AllOf(HasSubstr("64 hosts: 512 GPUs\n"), HasSubstr("64 x dgx-h100  (n0 to n63)"),
                    HasSubstr("a leaf switch per rail, 32 hosts per leaf, uplinks oversubscribed 2 : 1"),
                    HasSubstr("at the same leaves"), HasSubstr("across the spine")));
}

TEST(Tree, FindingsSayNothingTwice) {
  EXPECT_EQ(list({{Severity::note, "i", "GPU1", "GPU1 is slow", "do"},
                  {Severity::note, "i", "GPU2", "GPU2 is slow", "do"},
                  {Severity::error, "j", "", "text", ""},
                  {Severity::warning, "k", "there", "text", "mend"}}),
            "note: GPU1 is slow [i]\nnote: GPU2 is slow [i]\n  do\nerror: text [j]\nwarning: there: text "
            "[k]\n  mend\n");
}

TEST(Tree, Ranges) {
  EXPECT_EQ(ranges({}), "");
  EXPECT_EQ(ranges({3}), "3");
  EXPECT_EQ(ranges({0, 1, 2, 5, 7, 8}), "0-2,5,7-8");
}

TEST(Hops, MarkTheNarrowest) {
  const Machine m = host(kOneCard);
  const std::string text = hops(m, paths_from(m, m.find("GPU0"))[static_cast<size_t>(m.find("GPU3"))]);
  EXPECT_THAT(text,
              AllOf(testing::StartsWith("SYS: between NUMA nodes"),
                    HasSubstr("CPU interconnect  10 GB/s (table)  <- narrowest"), HasSubstr("  GPU3\n")));
  EXPECT_EQ(hops(m, paths_from(m, m.find("GPU0"))[static_cast<size_t>(m.find("GPU0"))]),
            "LOC: the device itself\n");
}

TEST(Nearest, SaysWhyGpuDirectIsPossibleOrNot) {
  EXPECT_THAT(nearest_table(host(kOneCard)),
              AllOf(HasSubstr("GPU0     -> mlx5_0       PIX         24 GB/s  GPUDirect ("),
                    HasSubstr("GPU2     -> mlx5_0       SYS         10 GB/s  no GPUDirect (")));
  EXPECT_EQ(nearest_table(host("{}")), "");
}

TEST(Dot, TellsLinksApart) {
  const std::string h100 = write_dot(cluster_of(*ready_host("dgx-h100")));
  EXPECT_THAT(h100, AllOf(testing::StartsWith("graph "), HasSubstr("#2e7d32"), HasSubstr("#1565c0"),
                          HasSubstr("#c62828"), HasSubstr("#ef6c00"), HasSubstr("subgraph cluster_s0numa"),
                          HasSubstr("18 links, 370.8")));
  EXPECT_THAT(h100, Not(HasSubstr("fabric")));
  EXPECT_THAT(write_dot(cluster_of(*ready_host("gb200-nvl72"))), HasSubstr("#6a1b9a"));
  const std::string cluster = write_dot(
      read_cluster_file(R"({"muster_cluster": 1, "hosts": [{"count": 4, "ready": "dgx-h100"}]})", "c", {}));
  EXPECT_THAT(cluster, AllOf(HasSubstr("InfiniBand fabric"), HasSubstr("dgx-h100 (4 hosts)")));
}

TEST(Explain, HasAllClassesAndSources) {
  const std::string text = explanation();
  for (int c = 0; c <= static_cast<int>(PathClass::dis); ++c)
    EXPECT_THAT(text, HasSubstr(fmt::format("  {} ", name_of(static_cast<PathClass>(c)))));
  for (const char* word :
       {"measured", "read", "table", "assumed", "20.6 GB/s per link", "gen5 x16   48 GB/s"})
    EXPECT_THAT(text, HasSubstr(word));
}

struct Comma : std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  std::string do_grouping() const override { return "\3"; }
  char do_thousands_sep() const override { return '.'; }
};

TEST(Locale, DoesNotMatter) {
  const auto all = [] {
    const Machine m = host(
        R"({"gpus": 2, "gpu": "H100", "nvlinks_per_gpu": 18, "nics": 1, "gbit_per_s": 12.5, "network": "roce", "port_latency_us": 1.25})");
    const Cluster c = cluster_of(m);
    return tree(m) + write_dot(c) + write_json(c) + write_json(read_json(write_json(c), "j")) +
           list(all_findings(m)) + nearest_table(m);
  };
  const std::string classic = all();
  EXPECT_THAT(classic, HasSubstr("12.5 Gbit/s (1.562 GB/s)"));
  const std::locale before = std::locale::global(std::locale(std::locale::classic(), new Comma));
  const std::string comma = all();
  std::locale::global(before);
  EXPECT_EQ(comma, classic);
  for (const char* name : {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8"}) {
    const std::string was = setlocale(LC_ALL, nullptr);
    if (!setlocale(LC_ALL, name)) continue;
    EXPECT_EQ(all(), classic) << name;
    setlocale(LC_ALL, was.c_str());
  }
}

}  // namespace
}  // namespace muster::topology
