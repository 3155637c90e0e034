// `muster plan` as a person runs it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "support/shell.h"

namespace muster {
namespace {

namespace fs = std::filesystem;
using test::Output;
using testing::AllOf;
using testing::HasSubstr;
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
    write("none.json",
          R"({"muster_cluster": 1, "hosts": [{"name": "n", "host": {"gpus": 0, "numa_nodes": 2}}]})");
  }
  ~PlanTool() override { fs::remove_all(folder); }
  void write(const std::string& name, const std::string& text) { std::ofstream(folder / name) << text; }
  Output plan(const std::string& arguments) const {
    return test::output_of("cd " + folder.string() + " && { " MUSTER_TOOL " plan " + arguments + "; } 2>&1");
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
                    HasSubstr("\nroof       "), HasSubstr("times as long; "),
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
  EXPECT_THAT(plan("all_reduce --size 4M --cluster big.json --algorithm tree --simulate").text,
              HasSubstr("can't be scaled from 32 to 2048 hosts"));
  EXPECT_THAT(plan("all_reduce --sizes 4M:8M --cluster one.json --simulate").text,
              HasSubstr("are for one --size"));
  EXPECT_THAT(plan("all_reduce --size 4M --cluster one.json --trace /nowhere/x").text,
              HasSubstr("can't write /nowhere/x"));
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
  EXPECT_THAT(refusal("all_reduce --size 0 --topo two.json"), HasSubstr("'0' is no size"));
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
  EXPECT_THAT(refusal("all_reduce --root 1 --topo two.json"), HasSubstr("all_reduce has no root"));
  EXPECT_THAT(refusal("all_reduce --topo missing.json"), HasSubstr("missing.json"));
  EXPECT_EQ(plan("all_reduce --gpus-per-thread 0 --topo two.json").status, 2);
}

}  // namespace
}  // namespace muster
