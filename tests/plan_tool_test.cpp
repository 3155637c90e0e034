// `muster plan` as a person runs it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "support/shell.h"

namespace muster {
namespace {

namespace fs = std::filesystem;
using test::Output;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class PlanTool : public testing::Test {
 protected:
  PlanTool() {
    std::string pattern = (fs::temp_directory_path() / "muster-plan-XXXXXX").string();
    folder = mkdtemp(pattern.data());
    write("two.json", R"({"muster_cluster": 1, "hosts": [{"count": 2, "name": "n", "ready": "dgx-h100"}]})");
    write(
        "big.json",
        R"({"muster_cluster": 1, "hosts": [{"count": 2048, "name": "n", "ready": "dgx-h100"}], "fabric": {"rails": true}})");
    write("cpus.json", R"({"muster_cluster": 1, "hosts": [{"count": 3, "name": "n", "host": {"gpus": 0, "numa_nodes": 2, "nics": 1,
        "network": "ethernet", "gbit_per_s": 10}}]})");
    write("none.json",
          R"({"muster_cluster": 1, "hosts": [{"name": "n", "host": {"gpus": 0, "numa_nodes": 2}}]})");
  }
  ~PlanTool() override { fs::remove_all(folder); }
  void write(const std::string& name, const std::string& text) { std::ofstream(folder / name) << text; }
  // `set`: variables for this run, "NCCL_PROTO=LL". Files of the user's don't count.
  Output plan(const std::string& arguments, const std::string& set = "") const {
    return test::output_of("cd " + folder.string() + " && { env HOME=" + folder.string() + " " + set +
                           " " MUSTER_TOOL " plan " + arguments + "; } 2>&1");
  }
  nlohmann::json json(const std::string& arguments, const std::string& set = "") const {
    const Output o = plan(arguments + " --json", set);
    EXPECT_EQ(o.status, 0) << o.text;
    return nlohmann::json::parse(o.text, nullptr, false);
  }
  fs::path folder;
};

TEST_F(PlanTool, SaysWhatIsChosenWhyAndWhatElse) {
  const Output o = plan("all_reduce --size 1G --cluster two.json");
  EXPECT_EQ(o.status, 0);
  EXPECT_THAT(o.text,
              AllOf(StartsWith("all_reduce of 1GB, float32: 16 ranks on 2 hosts; inside a host NVLink: "),
                    HasSubstr("a host's ports: 364 GB/s (InfiniBand)"), HasSubstr("\nchosen     "),
                    HasSubstr("\ntakes      "), HasSubstr(" busbw\n"), HasSubstr("\nbound by   "),
                    HasSubstr("times as long; "),
                    // The bound itself, and beside it how much of it is reached.
                    ContainsRegex("\nroof       [0-9.]+ GB/s algbw, [0-9.]+ GB/s busbw, [0-9.]+ ms, by "
                                  "[^;]+; [0-9]+ % of it reached\n"),
                    HasSubstr("sums in the NVSwitches (NVLS): Muster has no program for it")));
}

TEST_F(PlanTool, ShowsWhereTheChoiceSwitches) {
  const Output o = plan("allreduce --sizes 8:16G --topo two.json");
  EXPECT_EQ(o.status, 0);
  EXPECT_THAT(o.text,
              AllOf(HasSubstr("\n       8  "), HasSubstr("\n     16G  "), HasSubstr("<- switches\n")));
}

TEST_F(PlanTool, JsonHasEachCandidate) {
  const Output o = plan("all_gather --sizes 1M:4M --json --cluster two.json");
  ASSERT_EQ(o.status, 0) << o.text;
  const nlohmann::json j = nlohmann::json::parse(o.text);
  EXPECT_EQ(j["muster_plan"], 1);
  EXPECT_EQ(j["collective"], "all_gather");
  EXPECT_EQ(j["ranks"], 16);
  ASSERT_EQ(j["sizes"].size(), 3u);
  for (const auto& size : j["sizes"]) {
    EXPECT_FALSE(size["candidates"][0].contains("obstacle"));
    const auto& parts = size["candidates"][0]["parts"];
    EXPECT_NEAR(size["candidates"][0]["microseconds"].get<double>(),
                parts["launch"].get<double>() + parts["latency"].get<double>() +
                    parts["transfer"].get<double>() + parts["ramp"].get<double>(),
                1e-6);
  }
}

TEST_F(PlanTool, ForSixteenThousandGpus) {
  const Output o = plan("reduce_scatter --size 64M --cluster big.json");
  EXPECT_EQ(o.status, 0);
  EXPECT_THAT(o.text, HasSubstr("16384 ranks on 2048 hosts"));
}

TEST_F(PlanTool, ShowsRingsAndNumbers) {
  EXPECT_THAT(plan("all_reduce --rings --cluster two.json").text,
              AllOf(HasSubstr(" GB/s together; farthest hop inside hosts NVL"), HasSubstr("GB/s  0 ")));
  EXPECT_THAT(plan("--constants").text, AllOf(HasSubstr("gpu.launch"), HasSubstr("fitted")));
}

TEST_F(PlanTool, SimulatesAndShowsPrograms) {
  write("one.json", R"({"muster_cluster": 1, "hosts": [{"name": "n", "ready": "dgx-a100"}]})");
  const Output o =
      plan("all_reduce --size 4M --cluster one.json --algorithm ring --protocol simple --trace out.json");
  EXPECT_EQ(o.status, 0) << o.text;
  EXPECT_THAT(o.text, AllOf(HasSubstr("\nsimulated  "), HasSubstr("busiest links"), HasSubstr("GPU0"),
                            HasSubstr(" %\n")));
  std::ifstream trace(folder / "out.json");
  const nlohmann::json events = nlohmann::json::parse(trace);
  EXPECT_GT(events["traceEvents"].size(), 8u * 14u);  // 8 ranks, 14 steps and more
  EXPECT_THAT(plan("all_reduce --size 4M --cluster one.json --algorithm ring --program --rank 3").text,
              AllOf(HasSubstr("ring"), HasSubstr("slot(")));
  EXPECT_THAT(plan("all_reduce --size 4M --cluster one.json --algorithm ring --dot").text,
              StartsWith("digraph"));
  EXPECT_THAT(plan("all_reduce --size 4M --cluster big.json --dot").text,
              HasSubstr("--dot draws up to 64 ranks"));
  EXPECT_THAT(plan("all_reduce --size 4M --cluster big.json --trace x").text,
              HasSubstr("--trace is for up to 1024 ranks"));
  // 16,384 ranks by 24 and 32 hosts of 8.
  EXPECT_THAT(plan("all_gather --size 16K --cluster big.json --algorithm ring --simulate").text,
              HasSubstr(" steps run, of two smaller clusters of the same hosts\n"));
  EXPECT_THAT(plan("all_reduce --size 1G --cluster big.json --algorithm tree --simulate").text,
              AllOf(HasSubstr("can't be scaled from 32 hosts"),
                    HasSubstr("Up to 1024 ranks are simulated as they are: --ranks 1024"),
                    Not(HasSubstr("exactly"))));
  EXPECT_THAT(plan("all_reduce --size 4M --cluster one.json --trace /nowhere/x").text,
              HasSubstr("can't open /nowhere/x: ENOENT"));
}

TEST_F(PlanTool, PlansForTheMemoryOfSeveralHosts) {
  // 7 ranks: 3 on the first host, 2 on each of the others; 1.25 GB/s are 10 Gbit/s.
  const Output one = plan("all_reduce --size 64M --topo cpus.json --ranks 7");
  EXPECT_THAT(one.text, AllOf(StartsWith("all_reduce of 64MB, float32: 7 ranks on the memory of 3 hosts, up to 3 each, TCP over ports of 1.25 GB/s per host"),
                              HasSubstr("\nchosen     hierarchical "), HasSubstr("messages one after another"), HasSubstr("\nring ")));
  EXPECT_EQ(one.status, 0);
  // GPUs are there, but aren't what is asked about. Without --ranks one on each host.
  EXPECT_THAT(plan("all_reduce --sizes 8:64 --topo two.json --host").text, HasSubstr("2 ranks on the memory of 2 hosts, 1 each, RDMA"));
  EXPECT_THAT(plan("all_reduce --size 8 --topo cpus.json --json").text, AllOf(HasSubstr("\"hosts\": 3"), HasSubstr("\"chosen\"")));
  EXPECT_THAT(plan("all_reduce --size 1G --topo big.json --host --ranks 16384").text, HasSubstr("16384 ranks on the memory of 2048 hosts, 8 each"));
  EXPECT_THAT(plan("all_reduce --topo none.json --host").text, HasSubstr("memory of one host are planned for on that host"));
  EXPECT_THAT(plan("all_reduce --topo cpus.json --ranks 1").text, HasSubstr("--ranks 1: on the memory of 3 hosts 2 to "));
  EXPECT_THAT(plan("all_reduce --topo cpus.json --rings").text, HasSubstr("cpus.json has no GPUs"));
}

TEST_F(PlanTool, RefusesWithTheRemedy) {
  const auto refusal = [&](const std::string& arguments) {
    const Output o = plan(arguments);
    EXPECT_EQ(o.status, 1) << arguments << ": " << o.text;
    return o.text;
  };
  EXPECT_THAT(refusal("--topo two.json"), HasSubstr("a collective is wanted"));
  EXPECT_THAT(refusal("all_reduced --topo two.json"),
              HasSubstr("'all_reduced' is no collective. There are: all_reduce, "));
  EXPECT_THAT(refusal("all_reduce --size 0 --topo two.json"),
              HasSubstr("a size of 0 bytes ('0'): 1 to less than 2^62 bytes are possible"));
  EXPECT_THAT(refusal("all_reduce --size 4194304T --topo two.json"),
              HasSubstr("a size of 4611686018427387904 bytes"));
  EXPECT_THAT(refusal("all_reduce --size 1X --topo two.json"), HasSubstr("'1X' is no size"));
  EXPECT_THAT(refusal("all_reduce --sizes 8 --topo two.json"), HasSubstr("FROM:TO is wanted"));
  EXPECT_THAT(refusal("all_reduce --sizes 8:4 --topo two.json"), HasSubstr("ascending"));
  EXPECT_THAT(refusal("all_reduce --type float --topo two.json"),
              HasSubstr("'float' is no data type. There are: int8, "));
  EXPECT_THAT(refusal("all_reduce --algorithm circle --topo two.json"),
              HasSubstr("all_reduce has no algorithm 'circle'. There are: "));
  EXPECT_THAT(refusal("all_reduce --protocol LL64 --topo two.json"),
              HasSubstr("'LL64' is no protocol. There are: LL, LL128, simple"));
  EXPECT_THAT(refusal("all_reduce --ranks 17 --topo two.json"), HasSubstr("there are 16 GPUs"));
  EXPECT_THAT(refusal("broadcast --root 16 --topo two.json"), HasSubstr("ranks are 0 to 15"));
  EXPECT_THAT(refusal("all_reduce --root 1 --topo two.json"), HasSubstr("--root 1: all_reduce has no root"));
  EXPECT_THAT(refusal("all_reduce --topo missing.json"), HasSubstr("missing.json"));
  EXPECT_THAT(refusal("all_reduce --topo none.json"), HasSubstr("none.json has no GPUs"));
  EXPECT_EQ(plan("all_reduce --gpus-per-thread 0 --topo two.json").status, 2);
}

// --- options ---

// What is chosen, and what isn't though nothing else is against it.
std::set<std::string> choosable(const nlohmann::json& plan, const char* what) {
  std::set<std::string> names;
  for (const auto& c : plan["sizes"][0]["candidates"])
    if (!c.contains("obstacle")) names.insert(c[what]);
  return names;
}
std::string effect_of(const nlohmann::json& plan, const std::string& option) {
  for (const auto& o : plan["options"])
    if (o.value("name", "") == option) return o["effect"];
  return "nothing is said";
}
using Names = std::set<std::string>;

TEST_F(PlanTool, HonoursNcclProto) {
  const std::string call = "all_reduce --size 64K --topo two.json";
  EXPECT_EQ(choosable(json(call), "protocol"), (Names{"LL", "LL128", "simple"}));
  EXPECT_EQ(choosable(json(call, "NCCL_PROTO=ll,Simple"), "protocol"), (Names{"LL", "simple"}));
  EXPECT_EQ(choosable(json(call, "NCCL_PROTO=^LL128"), "protocol"), (Names{"LL", "simple"}));
  EXPECT_EQ(choosable(json(call, "'NCCL_PROTO=LL;allreduce:Simple'"), "protocol"), Names{"simple"});
  EXPECT_EQ(choosable(json(call, "NCCL_PROTO=broadcast:LL"), "protocol"), (Names{"LL", "LL128", "simple"}));
  EXPECT_EQ(effect_of(json(call, "NCCL_PROTO=broadcast:LL"), "NCCL_PROTO"),
            "no effect: it has no list for all_reduce");
  EXPECT_EQ(effect_of(json(call + " --protocol LL128", "NCCL_PROTO=LL"), "NCCL_PROTO"),
            "no effect: --protocol goes before it");
  EXPECT_THAT(plan(call, "NCCL_PROTO=LL").text, HasSubstr("\noptions    NCCL_PROTO=LL: only LL\n"));
  EXPECT_THAT(plan(call, "NCCL_PROTO=LL64").text,
              HasSubstr("NCCL_PROTO='LL64': 'LL64' is no protocol of NCCL's. There are: ll, ll128, simple"));
  EXPECT_THAT(plan(call, "NCCL_PROTO=^LL,LL128,Simple").text, HasSubstr("leaves no protocol"));
}

TEST_F(PlanTool, HonoursAlgorithms) {
  const std::string call = "all_reduce --size 64K --topo two.json";
  const Names all = choosable(json(call), "algorithm");
  EXPECT_GT(all.size(), 3u);
  EXPECT_EQ(choosable(json(call, "NCCL_ALGO=ring"), "algorithm"), Names{"ring"});
  EXPECT_EQ(choosable(json(call, "NCCL_ALGO=Ring,Tree"), "algorithm"), (Names{"ring", "tree"}));
  EXPECT_EQ(choosable(json(call, "'NCCL_ALGO=ring;allreduce:tree'"), "algorithm"), Names{"tree"});
  Names but_ring = all;
  but_ring.erase("ring");
  EXPECT_EQ(choosable(json(call, "NCCL_ALGO=^ring"), "algorithm"), but_ring);
  EXPECT_EQ(choosable(json(call, "NCCL_ALGO=nvls"), "algorithm"), all);
  EXPECT_EQ(effect_of(json(call, "NCCL_ALGO=nvls"), "NCCL_ALGO"),
            "no effect: Muster has none of 'nvls' for all_reduce");
  EXPECT_EQ(effect_of(json(call, "NCCL_ALGO=^nvls"), "NCCL_ALGO"),
            "no effect: Muster has nothing of what it excludes");
  const nlohmann::json both = json(call, "NCCL_ALGO=tree MUSTER_ALGO=ring");
  EXPECT_EQ(choosable(both, "algorithm"), Names{"ring"});
  EXPECT_EQ(effect_of(both, "NCCL_ALGO"), "no effect: MUSTER_ALGO goes before it");
  EXPECT_EQ(effect_of(json("all_gather --size 1M --topo two.json", "MUSTER_ALGO=tree"), "MUSTER_ALGO"),
            "no effect: all_gather has no tree");
  EXPECT_THAT(plan(call, "MUSTER_ALGO=circle").text,
              HasSubstr("MUSTER_ALGO='circle' names no algorithm. There are: one_shot, "));
  EXPECT_THAT(plan(call, "NCCL_ALGO=circle").text, HasSubstr("'circle' is no algorithm of NCCL's"));
}

TEST_F(PlanTool, HonoursBoundsOnChannels) {
  const std::string call = "all_reduce --size 1G --topo two.json --algorithm ring --protocol simple";
  const auto best = [](const nlohmann::json& j) { return j["sizes"][0]["candidates"][0]; };
  const auto channels = [&](const std::string& set) { return best(json(call, set))["channels"].get<int>(); };
  const int free = channels("");
  EXPECT_GT(free, 4);
  EXPECT_EQ(channels("NCCL_MAX_NCHANNELS=2"), 2);
  EXPECT_EQ(channels("NCCL_MAX_NRINGS=3"), 3);
  EXPECT_EQ(channels("NCCL_MAX_CTAS=1 NCCL_MAX_NCHANNELS=2"), 1);
  EXPECT_EQ(channels("NCCL_MIN_NCHANNELS=32"), 32);
  EXPECT_EQ(channels("MUSTER_CHANNELS=5 NCCL_MIN_CTAS=8"), 5);
  EXPECT_EQ(channels("NCCL_MIN_CTAS=100"), 64);
  EXPECT_EQ(channels("NCCL_MIN_CTAS=8 NCCL_MAX_CTAS=4"), 4);
  // 8 bytes in 1 channel, if there is no bound.
  const std::string tiny = "all_reduce --size 8 --topo two.json --algorithm ring --protocol LL";
  EXPECT_EQ(best(json(tiny))["channels"], 1);
  EXPECT_EQ(best(json(tiny, "NCCL_MIN_NCHANNELS=4"))["channels"], 4);
  // One thread block of an H100 moves 36.7 GB/s, where the links carry 370: of 16 ranks each sends 30/16 of
  // the data.
  const double us = best(json(call, "NCCL_MAX_NCHANNELS=1"))["parts"]["transfer"].get<double>();
  EXPECT_NEAR(us, (1 << 30) * 30.0 / 16 / 36.7e3, 1);
  EXPECT_THAT(plan(call, "NCCL_MAX_NCHANNELS=1").text,
              AllOf(HasSubstr("options    NCCL_MAX_NCHANNELS=1: at most 1 channel\n"),
                    HasSubstr("bound by   the bound on channels: a thread block each, 1 here")));
  EXPECT_THAT(plan(call, "MUSTER_CHANNELS=65").text, HasSubstr("MUSTER_CHANNELS=65: 64 are the most"));
}

TEST_F(PlanTool, HonoursBufferSize) {
  const std::string call = "all_reduce --size 1G --topo two.json --algorithm ring --protocol simple";
  const auto chunk = [&](const std::string& set) {
    return json(call, set)["sizes"][0]["candidates"][0]["chunk_bytes"].get<int>();
  };
  EXPECT_EQ(chunk(""), 512 << 10);
  EXPECT_EQ(chunk("NCCL_BUFFSIZE=1048576"), 128 << 10);
  EXPECT_EQ(chunk("NCCL_BUFFSIZE=8388608"), 1 << 20);
  EXPECT_THAT(plan(call, "NCCL_BUFFSIZE=1048576").text,
              HasSubstr("NCCL_BUFFSIZE=1048576: messages of protocol simple have up to 128KB"));
}

TEST_F(PlanTool, HonoursCrossNic) {
  write("four.json", R"({"muster_cluster": 1, "hosts": [{"count": 4, "name": "n", "ready": "dgx-h100"}]})");
  EXPECT_THAT(plan("--rings --topo four.json", "NCCL_CROSS_NIC=0").text, HasSubstr("370.8 GB/s together"));
  EXPECT_THAT(plan("--rings --topo four.json", "NCCL_CROSS_NIC=1").text, HasSubstr("384 GB/s together"));
  EXPECT_THAT(plan("all_reduce --topo four.json", "NCCL_CROSS_NIC=0").text,
              HasSubstr("NCCL_CROSS_NIC=0: rings leave a host by the port they came in by; --rings, "
                        "--program and --simulate show them, prices don't depend on it"));
  EXPECT_THAT(plan("all_reduce --topo four.json --ranks 8", "NCCL_CROSS_NIC=0").text,
              HasSubstr("NCCL_CROSS_NIC=0: no effect: one host"));
  EXPECT_THAT(plan("all_reduce --topo four.json", "NCCL_CROSS_NIC=3").text,
              HasSubstr("NCCL_CROSS_NIC='3': 0 ("));
}

TEST_F(PlanTool, SaysWhichOptionsHaveNoEffect) {
  EXPECT_THAT(
      plan("all_reduce --topo two.json", "NCCL_P2P_LEVEL=SYS MUSTER_SLOT_BYTES=64K NCCL_LL_BUFFSIZE=1").text,
      AllOf(HasSubstr("NCCL_P2P_LEVEL"), HasSubstr("MUSTER_SLOT_BYTES"), HasSubstr("NCCL_LL_BUFFSIZE"),
            HasSubstr("no effect on plans for GPUs\n")));
  EXPECT_THAT(plan("all_reduce --topo two.json", "NCCL_MIN_CTAS=many").text,
              HasSubstr("NCCL_MIN_CTAS='many' can't be read"));
  EXPECT_THAT(plan("all_reduce --topo two.json").text, Not(HasSubstr("options ")));
}

TEST_F(PlanTool, SaysOfHostMemoryToo) {
  const Output o =
      plan("all_reduce --size 1M --ranks 4 --host",
           "NCCL_ALGO=ring NCCL_PROTO=LL NCCL_MIN_NCHANNELS=3 NCCL_BUFFSIZE=1M NCCL_CROSS_NIC=1");
  EXPECT_EQ(o.status, 0) << o.text;
  EXPECT_THAT(o.text, AllOf(HasSubstr("\nchosen     ring "), HasSubstr("NCCL_ALGO=ring: only ring\n"),
                            HasSubstr("NCCL_PROTO=LL: no effect: host memory has no protocols to choose from"),
                            HasSubstr("NCCL_MIN_NCHANNELS=3: 3 channels\n"),
                            HasSubstr("NCCL_BUFFSIZE=1M: messages of up to 32KB\n"),
                            HasSubstr("NCCL_CROSS_NIC=1: no effect: ")));
  const nlohmann::json j =
      json("all_reduce --size 1M --ranks 4 --host --algorithm direct", "MUSTER_ALGO=ring");
  EXPECT_EQ(j["sizes"][0]["chosen"], "direct");
  EXPECT_EQ(effect_of(j, "MUSTER_ALGO"), "no effect: --algorithm goes before it");
  EXPECT_THAT(plan("broadcast --size 1M --ranks 4 --host", "NCCL_ALGO=nvls").text,
              HasSubstr("NCCL_ALGO=nvls: no effect: Muster has none of 'nvls'\n"));
  EXPECT_THAT(plan("all_reduce --ranks 257 --host").text,
              HasSubstr("--ranks 257: ranks on host memory are planned for up to 256"));
}

TEST_F(PlanTool, TakesConstantsOfATuningProfile) {
  write("mine.tuning", "gpu.copy.sm90 3360 GB/s measured somewhere\n");
  EXPECT_THAT(plan("all_reduce --topo two.json --ranks 1", "MUSTER_TUNING_PROFILE=mine.tuning").text,
              AllOf(HasSubstr("constants  mine.tuning, over those built in\n"),
                    HasSubstr("the GPU's memory, 3360 GB/s copied")));
  EXPECT_THAT(plan("--constants", "MUSTER_TUNING_PROFILE=mine.tuning").text,
              ContainsRegex("gpu.copy.sm90 +3360 "));
  EXPECT_THAT(plan("all_reduce --topo two.json").text, Not(HasSubstr("constants  ")));
}

// --- what can't be planned as it seems ---

TEST_F(PlanTool, SaysWhatOfTheTopologyBearsOnSpeed) {
  write(
      "pcie.json",
      R"({"muster_cluster": 1, "hosts": [{"count": 1, "name": "n", "host": {"gpus": 8, "gpu": "H100", "pci_generation": 5}}]})");
  const Output o = plan("all_reduce --topo pcie.json");
  EXPECT_EQ(o.status, 0) << o.text;
  EXPECT_THAT(o.text, AllOf(HasSubstr("\nnote       8 GPUs may have up to 18 NVLinks each, and none is known "
                                      "of: they are taken to have PCIe alone\n"),
                            HasSubstr("muster topo pcie.json says more")));
  const nlohmann::json j = json("all_reduce --topo pcie.json");
  EXPECT_TRUE(std::any_of(j["findings"].begin(), j["findings"].end(),
                          [](const auto& f) { return f["id"] == "nvlink-unknown"; }));
  EXPECT_THAT(plan("all_reduce --topo two.json").text, Not(HasSubstr("NVLinks each")));
}

TEST_F(PlanTool, OneRankCopies) {
  const Output o = plan("all_reduce --size 1G --topo two.json --ranks 1");
  EXPECT_EQ(o.status, 0);
  EXPECT_THAT(o.text, AllOf(StartsWith("all_reduce of 1GB, float32: 1 rank on 1 host\n"),
                            HasSubstr("\nchosen     copy: "), Not(HasSubstr("inf")), Not(HasSubstr("nan")),
                            HasSubstr("bound by   the GPU's memory, 1680 GB/s copied")));
  const nlohmann::json j = json("broadcast --sizes 8:1G --topo two.json --ranks 1");
  for (const auto& size : j["sizes"]) {
    EXPECT_EQ(size["candidates"][0]["algorithm"], "copy");
    EXPECT_TRUE(size["candidates"][0]["algbw"].is_number());
  }
  EXPECT_EQ(plan("--rings --topo two.json --ranks 1").text, "no ring: there is one rank\n");
  EXPECT_THAT(plan("all_reduce --topo two.json --ranks 1 --simulate").text,
              HasSubstr("one rank sends nothing, so there is nothing to simulate"));
}

TEST_F(PlanTool, TablesHaveEachSize) {
  // One message holds up to 512 KiB of protocol simple.
  const Output o = plan("all_reduce --sizes 256K:1M --topo two.json --algorithm bruck --protocol simple");
  EXPECT_EQ(o.status, 0);
  EXPECT_THAT(o.text, AllOf(HasSubstr("\n    256K  bruck "), HasSubstr("\n    512K  bruck "),
                            HasSubstr("\n      1M  no algorithm serves. bruck by simple: sends all data as "
                                      "one message, so up to 524288 bytes: these are 1048576\n")));
}

TEST_F(PlanTool, IgnoresNoOption) {
  for (const char* pair : {"--dot --json",
                           "--program --dot",
                           "--program --simulate",
                           "--dot --trace x",
                           "--rings --sizes 8:16",
                           "--rings --size 8",
                           "--rings --program",
                           "--rings --json",
                           "--rings --algorithm ring",
                           "--rings --simulate",
                           "--rank 1",
                           "--rank 1 --dot",
                           "--program --json --rank 1",
                           "--all-tiles",
                           "--ranks 0",
                           "--ranks -1",
                           "--rank -1 --program",
                           "--root -1",
                           "--size 8 --sizes 8:16",
                           "--sizes 8:16 --simulate",
                           "--sizes 8:16 --program",
                           "--constants --size 8",
                           "--host --simulate"}) {
    const Output o = plan(std::string("all_reduce --topo two.json ") + pair);
    EXPECT_EQ(o.status, 2) << pair << ": " << o.text;
    EXPECT_THAT(o.text, HasSubstr("--")) << pair;
  }
  EXPECT_EQ(plan("all_reduce --host --protocol LL").status, 2);
}

TEST_F(PlanTool, SimulatesForPrograms) {
  const nlohmann::json j = json("all_reduce --size 1M --topo two.json --ranks 8 --algorithm ring --simulate");
  EXPECT_GT(j["simulation"]["microseconds"].get<double>(), 0);
  EXPECT_GT(j["simulation"]["links"].size(), 8u);
  EXPECT_FALSE(j["sizes"][0]["candidates"].empty());
}

TEST_F(PlanTool, ProgramsOfAPlanAreProgramsForMuster) {
  const Output o = plan("all_gather --size 1M --topo two.json --algorithm ring --program --json");
  EXPECT_EQ(o.status, 0) << o.text;
  write("ring.json", o.text);
  const Output checked = test::output_of(MUSTER_TOOL " program " + (folder / "ring.json").string() + " 2>&1");
  EXPECT_EQ(checked.status, 0) << checked.text;
  EXPECT_THAT(checked.text, AllOf(HasSubstr("collective  all_gather\n"), HasSubstr("ranks       16\n"),
                                  HasSubstr("checked     right")));
}

}  // namespace
}  // namespace muster
