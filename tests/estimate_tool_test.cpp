// `muster estimate` as a person runs it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <string>

#include "support/shell.h"

namespace muster {
namespace {

namespace fs = std::filesystem;
using test::Output;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::StartsWith;

class EstimateTool : public testing::Test {
 protected:
  EstimateTool() {
    std::string pattern = (fs::temp_directory_path() / "muster-estimate-XXXXXX").string();
    folder = mkdtemp(pattern.data());
    std::ofstream(folder / "big.json")
        << R"({"muster_cluster": 1, "hosts": [{"count": 2048, "name": "n", "ready": "dgx-h100"}], "fabric": {"rails": true}})";
    std::ofstream(folder / "cpus.json")
        << R"({"muster_cluster": 1, "hosts": [{"count": 3, "name": "n", "host": {"gpus": 0, "nics": 1}}]})";
  }
  ~EstimateTool() override { fs::remove_all(folder); }
  Output estimate(const std::string& arguments) const {
    return test::output_of("cd " + folder.string() + " && { env HOME=" + folder.string() +
                           " " MUSTER_TOOL " estimate " + arguments + "; } 2>&1");
  }
  fs::path folder;
};

TEST_F(EstimateTool, LlamaOnSixteenThousandGpus) {
  const Output o = estimate(
      "llama3-405b --cluster big.json --layout tp=8,pp=16,dp=128 --zero 1 --interleave 8 --global-batch 2048 "
      "--svg out.svg");
  EXPECT_EQ(o.status, 0) << o.text;
  EXPECT_THAT(o.text,
              AllOf(StartsWith("llama3-405b: 405.9 billion parameters; 126 layers"),
                    HasSubstr("16384 GPUs, 2048 hosts"), ContainsRegex("\n  weights  +5.94 GiB\n"),
                    HasSubstr(": fits\n"), ContainsRegex("\n  tp   activations +all_gather +8  NVLink "),
                    ContainsRegex("\n  dp   gradients +all_reduce +128  InfiniBand "), HasSubstr("MFU 40."),
                    HasSubstr("bound by computation; of the links by NVLink")));
  std::ifstream file(folder / "out.svg");
  std::stringstream svg;
  svg << file.rdbuf();
  EXPECT_THAT(svg.str(), AllOf(StartsWith("<svg xmlns="), HasSubstr("<title>activations: "),
                               HasSubstr("<title>pipeline idle: "), testing::EndsWith("</svg>\n")));
  const std::string text = svg.str();
  const std::regex at("[ <](?:x|x1|width)=\"([0-9.]+)\"");  // nothing is beside the picture
  for (std::sregex_iterator i(text.begin(), text.end(), at), end; i != end; ++i)
    EXPECT_LE(std::stod((*i)[1]), 1000) << i->str();
  // Well-formed, where something can tell.
  const Output parsed = test::output_of(
      "command -v python3 > /dev/null || exit 0; python3 -c \"import xml.dom.minidom as m; m.parse('" +
      (folder / "out.svg").string() + "')\" 2>&1");
  EXPECT_EQ(parsed.status, 0) << parsed.text;
}

TEST_F(EstimateTool, JsonHasAllOfIt) {
  const Output o = estimate("llama3-70b --layout tp=8,pp=2,dp=2 --global-batch 32 --zero 2 --json");
  ASSERT_EQ(o.status, 0) << o.text;
  const nlohmann::json j = nlohmann::json::parse(o.text);
  EXPECT_EQ(j["muster_estimate"], 1);
  EXPECT_EQ(j["model"]["parameters"], 70553706496);
  EXPECT_EQ(j["model"]["least_devices"], 14);
  EXPECT_NEAR(j["model"]["state_bytes"].get<double>(), 1.129e12, 1e9);
  ASSERT_EQ(j["estimates"].size(), 1u);
  const nlohmann::json& e = j["estimates"][0];
  EXPECT_EQ(e["layout"]["pp"], 2);
  double sum = 0;
  for (const auto& [name, seconds] : e["seconds"].items())
    if (name != "step") sum += seconds.get<double>();
  EXPECT_NEAR(e["seconds"]["step"].get<double>(), sum, 1e-9);
  sum = 0;
  for (const char* tenant : {"weights", "gradients", "master", "moments", "gathered", "activations"})
    sum += e["memory"][tenant].get<double>();
  EXPECT_NEAR(e["memory"]["bytes"].get<double>(), sum, 1);
  EXPECT_GT(e["traffic"].size(), 3u);
}

TEST_F(EstimateTool, SearchesAndDescribesModels) {
  const Output o = estimate("llama3-70b --search --gpus 32 --global-batch 64 --most 3 --svg out.svg");
  EXPECT_EQ(o.status, 0) << o.text;
  EXPECT_THAT(o.text, AllOf(ContainsRegex("[0-9]+ of [0-9]+ layouts fit; the fastest:\n"),
                            ContainsRegex("\ntp=[248],.* %  ")));
  EXPECT_TRUE(fs::exists(folder / "out.svg"));
  EXPECT_THAT(estimate("--models").text,
              AllOf(HasSubstr("llama3-405b"), HasSubstr("405853388800"), HasSubstr("arXiv")));
  // A mixture of experts by its sizes, expert-parallel.
  const Output own = estimate(
      "--layers 32 --hidden 4096 --heads 32 --kv-heads 8 --ffn 14336 --vocab 32000 --sequence 4096 --experts "
      "8 --layout ep=8,dp=2");
  EXPECT_EQ(own.status, 0) << own.text;
  EXPECT_THAT(own.text,
              AllOf(HasSubstr("46.7 billion parameters (12.88 of a token)"), HasSubstr("all_to_all")));
  EXPECT_THAT(estimate("llama3-8b --layout tp=16 --global-batch 4").text,
              HasSubstr("note     "));  // tp leaves hosts
}

TEST_F(EstimateTool, RefusesWithNumbersAndRemedy) {
  const auto refused = [&](const std::string& arguments) {
    const Output o = estimate(arguments);
    EXPECT_NE(o.status, 0) << arguments << "\n" << o.text;
    return o.text;
  };
  EXPECT_THAT(refused("llama3-70 --layout tp=8"), HasSubstr("did you mean llama3-70b?"));
  EXPECT_THAT(refused("llama3-70b"), HasSubstr("--search for the best"));
  EXPECT_THAT(refused("--layout tp=8"), HasSubstr("a model is wanted"));
  EXPECT_THAT(refused("llama3-70b --layers -3 --layout tp=8"), HasSubstr("--layers -3"));
  EXPECT_THAT(refused("llama3-70b --layout tp=7"), HasSubstr("tp = 7 doesn't divide 64 heads"));
  EXPECT_THAT(refused("llama3-70b --layout pp=7"), HasSubstr("doesn't divide 80 layers"));
  EXPECT_THAT(refused("llama3-70b --layout tp=8 --micro-batch -1"), HasSubstr("micro-batch -1"));
  EXPECT_THAT(refused("llama3-70b --layout tp=8 --micro-batch 0 --global-batch 8"),
              HasSubstr("micro-batch 0"));
  EXPECT_THAT(refused("llama3-70b --layout tp=8,dp=4096 --cluster big.json"),
              HasSubstr("32768 GPUs are wanted, and the cluster has 16384"));
  EXPECT_THAT(refused("llama3-70b --layout tp=8 --cluster cpus.json"), HasSubstr("GPU"));
  EXPECT_THAT(refused("llama3-70b --layout tp=8 --recompute some"), HasSubstr("none, selective or full"));
  EXPECT_THAT(refused("llama3-70b --layout tp=8 --share 1.5"), HasSubstr("--share 1.5"));
  EXPECT_THAT(refused("llama3-70b --layout tp=8 --peak -5"), HasSubstr("--peak -5"));
  EXPECT_THAT(refused("llama3-70b --layout tp=8 --host toaster"), HasSubstr("there are dgx-1v"));
  EXPECT_THAT(refused("llama3-70b --search --gpus 8 --global-batch 8"), HasSubstr("no layout of 8 GPUs"));
  EXPECT_THAT(refused("llama3-70b --search --gpus 8"), HasSubstr("one --global-batch"));
  EXPECT_THAT(refused("llama3-70b --search --layout tp=8"), HasSubstr("excludes"));
}

}  // namespace
}  // namespace muster
