// `muster topo` as a person runs it: what it prints, its exit status, bad files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "support/corpus.h"
#include "support/shell.h"

namespace muster {
namespace {

namespace fs = std::filesystem;
using test::Output;
using test::output_of;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// Both streams.
Output shell(const std::string& command) { return output_of("{ " + command + "; } 2>&1"); }

class Topo : public testing::Test {
 protected:
  Topo() {
    std::string pattern = (fs::temp_directory_path() / "muster-topo-XXXXXX").string();
    folder = mkdtemp(pattern.data());
    write("one.json", R"({"muster_cluster": 1, "hosts": [{"name": "a", "ready": "dgx-h100"}]})");
    write(
        "many.json",
        R"({"muster_cluster": 1, "hosts": [{"count": 4, "name": "n", "ready": "dgx-h100"}, {"ready": "dgx-h100", "name": "last"}], "fabric": {"rails": true}})");
    write(
        "virtual.json",
        R"({"muster_cluster": 1, "hosts": [{"host": {"gpus": 2, "gpu": "A100", "pci_generation": 1, "pci_lanes": 1}}]})");
    write("table.txt", "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV12\t0-7\nGPU1\tNV12\t X \t0-7\n");
  }
  ~Topo() override { fs::remove_all(folder); }

  void write(const std::string& name, const std::string& text) { std::ofstream(folder / name) << text; }
  Output topo(const std::string& arguments, const std::string& environment = "") const {
    return shell("cd " + folder.string() + " && env -u NO_COLOR LC_ALL=C.UTF-8 " + environment +
                 " " MUSTER_TOOL " topo " + arguments);
  }
  fs::path folder;
};

TEST_F(Topo, ShowsTreeMatrixPortsAndFindings) {
  const Output o = topo("one.json");
  EXPECT_EQ(o.status, 0);
  EXPECT_THAT(
      o.text,
      AllOf(
          StartsWith("dgx-h100: 8 x H100, 8 network ports, 2 NUMA nodes\n"),
          HasSubstr("NVLink 18 links 370.8 GB/s"), HasSubstr("NV18"),
          HasSubstr("The nearest port of each GPU:\nGPU0     -> mlx5_0       PIX         48 GB/s  GPUDirect"),
          HasSubstr("Nothing to remark.")));
  EXPECT_THAT(o.text, Not(HasSubstr("\033"))) << "no colours into a pipe";
  EXPECT_THAT(topo("virtual.json").text,
              HasSubstr("warning: GPU GPU0 says that its PCI link is 2.5 GT/s x1, 0.1875 GB/s: what virtual "
                        "bridges say [implausible-pci-link]\n"));
}

TEST_F(Topo, ReadsStandardInput) {
  const Output o = topo("- < table.txt");
  EXPECT_EQ(o.status, 0) << o.text;
  EXPECT_THAT(o.text, HasSubstr("NV12"));
  EXPECT_THAT(topo("- < /dev/null").text,
              HasSubstr("muster: standard input is no topology that can be read, but empty"));
}

TEST_F(Topo, ShowsClusters) {
  const Output o = topo("many.json");
  EXPECT_EQ(o.status, 0);
  EXPECT_THAT(o.text,
              AllOf(HasSubstr("5 hosts: 40 GPUs\n"), HasSubstr("4 x dgx-h100  (n0 to n3)"),
                    HasSubstr("1 x dgx-h100  (last)"), HasSubstr("GPU to the same GPU of another host")));
}

TEST_F(Topo, WritesWhatItReads) {
  for (const char* format : {"--json", "--matrix"}) {
    const Output o = topo(std::string("one.json ") + format +
                          " > again && " MUSTER_TOOL " topo again --matrix > b && " MUSTER_TOOL
                          " topo one.json --matrix > a && diff a b");
    EXPECT_EQ(o.status, 0) << format << ": " << o.text;
  }
  EXPECT_THAT(topo("many.json --json").text, StartsWith("{\n  \"muster_topology\": 1,"));
  // NCCL's format has no host bridges, so what was NODE is PHB.
  const Output nccl =
      topo("one.json --nccl-xml > again && " MUSTER_TOOL
           " topo --diff one.json again | grep -v -e 'host bridge, only in the first' -e 'class NODE / PHB'");
  EXPECT_EQ(nccl.text, "first / second: one.json / again\n");
  EXPECT_THAT(topo("one.json --nccl-xml").text, StartsWith("<system version=\"1\""));
  EXPECT_THAT(topo("one.json --dot").text, StartsWith("graph \""));
}

TEST_F(Topo, DrawsPictures) {
  if (shell("dot -V").status == 0) {
    EXPECT_EQ(topo("many.json --svg out.svg").status, 0);
    EXPECT_THAT(test::text_of(folder / "out.svg"), AllOf(HasSubstr("<svg"), HasSubstr("GPU7")));
    EXPECT_THAT(topo("one.json --svg -").text, HasSubstr("</svg>"));
    const Output nowhere = topo("one.json --svg /nonexistent/out.svg");
    EXPECT_EQ(nowhere.status, 1);
    EXPECT_THAT(nowhere.text, HasSubstr("Graphviz's dot could not draw /nonexistent/out.svg"));
  }
  const Output without = topo("one.json --svg out2.svg", "PATH=/nonexistent");
  EXPECT_EQ(without.status, 1);
  EXPECT_THAT(without.text, HasSubstr("muster: Graphviz's dot is not installed"));
}

TEST_F(Topo, PathsHopByHop) {
  const Output o = topo("one.json --paths GPU0 mlx5_5");
  EXPECT_EQ(o.status, 0);
  EXPECT_THAT(o.text, AllOf(StartsWith("SYS: between NUMA nodes"),
                            HasSubstr("CPU interconnect  22 GB/s (table)  <- narrowest\n"),
                            HasSubstr("  mlx5_5 (port)\n")));
  EXPECT_EQ(topo("--paths GPU0 mlx5_5 one.json").text, o.text);
  EXPECT_THAT(topo("one.json --paths gpu0 GPU7").text,
              AllOf(StartsWith("NVL:"), HasSubstr("NVLink x18  370.8 GB/s (table)")));
  const Output net = topo("many.json --paths n0/GPU1 last/GPU1");
  EXPECT_EQ(net.status, 0) << net.text;
  EXPECT_THAT(net.text, AllOf(StartsWith("NET: InfiniBand. 48 GB/s, 48 when all GPUs do the same"),
                              HasSubstr("n0: PIX"), HasSubstr("network: 1 switch, one rail\n"),
                              HasSubstr("last: PIX")));
  EXPECT_THAT(topo("many.json --paths 0/GPU1 4/GPU1").text, HasSubstr("network: 1 switch"));
  for (const auto& [arguments, reason] :
       {std::pair("one.json --paths GPU0 GPU8", "there is no device 'GPU8'"),
        {"one.json --paths GPU0 mlx6_1", "Is 'mlx5_1' meant?"},
        {"many.json --paths GPU0 GPU1", "HOST/DEVICE is wanted in a cluster, such as n0/GPU0"},
        {"many.json --paths n0/GPU0 n4/GPU0", "there is no host 'n4'"},
        {"many.json --paths n0/GPU0 n1/mlx5_0", "mlx5_0 is no GPU"}}) {
    const Output wrong = topo(arguments);
    EXPECT_EQ(wrong.status, 1) << arguments;
    EXPECT_THAT(wrong.text, HasSubstr(reason)) << arguments;
  }
}

TEST_F(Topo, Check) {
  EXPECT_EQ(topo("one.json --check").text, "nothing implausible\n");
  EXPECT_EQ(topo("one.json --check").status, 0);
  const Output o = topo("virtual.json --check");
  EXPECT_EQ(o.status, 1);
  EXPECT_THAT(o.text, AllOf(StartsWith("warning: GPU GPU0 says"), Not(HasSubstr("note: "))));
}

TEST_F(Topo, Diff) {
  const Output same = topo("--diff one.json one.json");
  EXPECT_EQ(same.status, 0) << same.text;
  EXPECT_EQ(same.text, "the same\n");
  write("other.json", R"({"muster_cluster": 1, "hosts": [{"name": "a", "ready": "hgx-h200"}]})");
  const Output o = topo("--diff one.json other.json");
  EXPECT_EQ(o.status, 1);
  EXPECT_THAT(o.text, StartsWith("first / second: one.json / other.json\n"));
  EXPECT_THAT(topo("--diff one.json many.json").text, HasSubstr("hosts: 1 / 5\n"));
}

TEST_F(Topo, Explain) {
  const Output o = topo("--explain");
  EXPECT_EQ(o.status, 0);
  EXPECT_THAT(o.text, AllOf(HasSubstr("PIX"), HasSubstr("assumed")));
}

TEST_F(Topo, GraphFilesPrintTheirRings) {
  write(
      "graph.xml",
      R"(<graphs version="1"><graph id="0" pattern="4" crossnic="0" nchannels="1" speedintra="20" speedinter="20" typeintra="NVL" typeinter="PIX" samechannels="1">
    <channel><gpu dev="0"/><gpu dev="1"/></channel></graph></graphs>)");
  const Output o = topo("graph.xml");
  EXPECT_EQ(o.status, 0) << o.text;
  EXPECT_THAT(o.text, HasSubstr("ring"));
  EXPECT_THAT(topo("graph.xml --matrix").text, HasSubstr("rings and trees, and no topology"));
}

TEST_F(Topo, ThisMachine) {
  const Output o = topo("");
  EXPECT_EQ(o.status, 0) << o.text;
  EXPECT_THAT(o.text, HasSubstr("NUMA"));
  EXPECT_EQ(topo("--json").status, 0);
  const Output empty = topo("--root " + folder.string());
  EXPECT_EQ(empty.status, 0) << empty.text;
}

TEST_F(Topo, ThisMachineIsWhatRanksSee) {
  const Output o = topo("", "NCCL_TOPO_FILE=one.json");
  EXPECT_EQ(o.status, 0) << o.text;
  EXPECT_THAT(o.text, AllOf(HasSubstr("8 x H100"), HasSubstr("one.json")));
  EXPECT_EQ(topo("", "NCCL_TOPO_FILE=missing").status, 0);
  EXPECT_EQ(topo("", "NCCL_TOPO_FILE=many.json").status, 1);
}

TEST_F(Topo, BadFiles) {
  fs::create_directory(folder / "directory");
  ASSERT_EQ(mkfifo((folder / "fifo").c_str(), 0600), 0);
  write("empty", "");
  write("broken.xml", "<system version=\"1\">\n  <cpu numaid=\"0\"");
  write("poem.txt", "roses are red\n");
  for (const auto& [file, reason] : {std::pair("missing", "can't open missing: ENOENT"),
                                     {"directory", "is a directory"},
                                     {"fifo", "is a pipe"},
                                     {"empty", "empty is no topology that can be read, but empty"},
                                     {"broken.xml", "broken.xml:2:"},
                                     {"poem.txt", "text that begins with 'roses are red'"}}) {
    for (const char* option : {"", " --json", " --check"}) {
      const Output o = topo(std::string(file) + option);
      EXPECT_EQ(o.status, 1) << file;
      EXPECT_THAT(o.text, AllOf(StartsWith("muster: "), HasSubstr(reason))) << file;
    }
  }
}

TEST_F(Topo, WrongUse) {
  for (const char* wrong :
       {"one.json --json --dot", "--svg", "--paths GPU0", "one.json two.json", "--nonsense",
        "one.json --root /", "one.json --diff a b", "one.json --explain", "--root ''"})
    EXPECT_EQ(topo(wrong).status, 2) << wrong;
}

TEST_F(Topo, TheReaderOfItsOutputMayGo) {
  const Output o = topo("many.json --json | head -n 1");
  EXPECT_EQ(o.status, 0);
  EXPECT_EQ(o.text, "{\n");
  const Output full = topo("one.json > /dev/full");
  EXPECT_EQ(full.status, 1);
  EXPECT_THAT(full.text, HasSubstr("can't write the output: ENOSPC"));
}

TEST_F(Topo, LocaleDoesNotMatter) {
  const std::string c = topo("one.json").text;
  EXPECT_EQ(topo("one.json", "LC_ALL=de_DE.UTF-8").text, c);
  EXPECT_THAT(topo("one.json", "LC_ALL=C").text, HasSubstr("`- host bridge 3"));
}

TEST_F(Topo, ColoursOnTerminals) {
  if (shell("script --version").status != 0)
    GTEST_SKIP() << "script, which gives programs a terminal, is not installed";
  const auto on_terminal = [&](const std::string& environment) {
    return shell("cd " + folder.string() + " && env -u NO_COLOR TERM=xterm " + environment +
                 " script -qec '" MUSTER_TOOL " topo one.json' /dev/null < /dev/null")
        .text;
  };
  EXPECT_THAT(on_terminal(""), HasSubstr("\033[1;32mGPU0\033[0m"));
  EXPECT_THAT(on_terminal("NO_COLOR=1"), Not(HasSubstr("\033")));
  EXPECT_THAT(on_terminal("TERM=dumb"), Not(HasSubstr("\033")));
}

// Each real file is read, or refused with its name, and never by a crash.
TEST(TopoCorpus, IsReadOrRefused) {
  MUSTER_NEEDS_CORPUS();
  for (const char* folder : {"nccl-topo", "nccl-graph", "hwloc", "smi-topo"})
    for (const fs::path& file : test::files_in(test::corpus() / folder)) {
      const Output o = shell(MUSTER_TOOL " topo '" + file.string() + "'");
      if (o.status == 0) {
        EXPECT_THAT(o.text, Not(HasSubstr("muster: "))) << file;
      } else {
        EXPECT_EQ(o.status, 1) << file << "\n" << o.text;
        EXPECT_THAT(o.text, AllOf(StartsWith("muster: "), HasSubstr(file.filename().string()))) << file;
      }
    }
}

}  // namespace
}  // namespace muster
