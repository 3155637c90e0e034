// Which format a text is in, what others seem to be, and loading of files.
#include "topology/read.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "muster/types.h"
#include "support/corpus.h"

namespace muster::topology {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

template <class F>
std::string refusal(F f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "accepted";
}

TEST(Recognise, ByWhatIsInIt) {
  EXPECT_EQ(recognise("<system version=\"1\">"), Format::nccl_xml);
  EXPECT_EQ(recognise("\xef\xbb\xbf<?xml version=\"1.0\"?>\r\n<!-- a <graphs> comment -->\n<system>"),
            Format::nccl_xml);
  EXPECT_EQ(recognise("<graphs version=\"1\"><graph/></graphs>"), Format::nccl_graph);
  EXPECT_EQ(
      recognise("<?xml version=\"1.0\"?><!DOCTYPE topology SYSTEM \"hwloc2.dtd\"><topology version=\"2.0\">"),
      Format::hwloc_xml);
  EXPECT_EQ(recognise("\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV1\nGPU1\tNV1\t X \n"), Format::smi_matrix);
  EXPECT_EQ(recognise("$ nvidia-smi topo -m\n\033[4m\tGPU0\tGPU1\033[0m\n\033[1mGPU0\033[0m X PHB\n"),
            Format::smi_matrix);
  EXPECT_EQ(recognise("|      | GPU0 | GPU1 |\n|------|------|------|\n|GPU0|X|NV4|\n|GPU1|NV4|X|\n"), Format::smi_matrix);
  EXPECT_EQ(recognise("| GPU0 |"), Format::unknown);
  EXPECT_EQ(recognise("// mine\n{ /* version */ \"muster_cluster\": 1}"), Format::cluster);
  EXPECT_EQ(recognise("{\"muster_topology\": 1}"), Format::json);
  EXPECT_EQ(recognise("{\"muster_topology\": 1, \"name\": \"\\\"muster_cluster\\\"\"}"), Format::json);
  for (const char* other : {"", " \n", "GPU", "GPU0", "GPU0: NVIDIA H100 (UUID: GPU-1)", "{}", "[1]",
                            "<html>", "<svg/>", "<", "<!-- endless", "hello"})
    EXPECT_EQ(recognise(other), Format::unknown) << other;
}

TEST(Recognise, SaysWhatOthersSeemToBe) {
  EXPECT_EQ(seems_to_be(""), "empty");
  EXPECT_EQ(seems_to_be(" \r\n\t"), "nothing but blanks");
  EXPECT_EQ(seems_to_be(std::string("\x7f"
                                    "ELF\x02\x01\x01\0\0",
                                    9)),
            "a program");
  EXPECT_EQ(seems_to_be(std::string("a\0b", 3)), "binary");
  EXPECT_THAT(seems_to_be("\x1f\x8b\x08"), HasSubstr("gzip"));
  EXPECT_EQ(seems_to_be("<!DOCTYPE html>\n<html><body>"), "a web page");
  EXPECT_THAT(seems_to_be("<nvidia_smi_log>"), HasSubstr("nvidia-smi topo -m is wanted"));
  EXPECT_EQ(seems_to_be("<books/>"), "XML of an unknown kind (<books>)");
  EXPECT_THAT(seems_to_be("{\"cluster\": 1}"), HasSubstr("JSON without"));
  EXPECT_THAT(seems_to_be("version https://git-lfs.github.com/spec/v1\noid sha256:00"),
              HasSubstr("git lfs pull"));
  EXPECT_EQ(seems_to_be("host:1:2 [0] NCCL INFO Channel 00/02 : 0 1"), "a debug log of NCCL");
  EXPECT_THAT(seems_to_be("| NVIDIA-SMI 550  Driver Version: 550  CUDA Version: 12.4 |"),
              HasSubstr("nvidia-smi topo -m is wanted"));
  EXPECT_EQ(seems_to_be("dear all\nhello"), "text that begins with 'dear all'");
  EXPECT_EQ(seems_to_be("a\033[31mb"), "text that begins with 'a [31mb'") << "nothing that a terminal obeys";
}

TEST(ReadTopology, RefusesWithTheReason) {
  EXPECT_THAT(refusal([] { read_topology("<graphs version=\"1\"/>", "g.xml"); }),
              HasSubstr("g.xml is NCCL graph XML: it has rings and trees"));
  EXPECT_THAT(refusal([] { read_topology("", "e"); }),
              HasSubstr("e is no topology that can be read, but empty"));
  EXPECT_THAT(refusal([] { read_topology("{\"muster_topology\": 1,", "t"); }),
              HasSubstr("t:1:23: no well-formed JSON"));
}

class Files : public testing::Test {
 protected:
  Files() {
    std::string pattern = (fs::temp_directory_path() / "muster-read-XXXXXX").string();
    folder = mkdtemp(pattern.data());
  }
  ~Files() override { fs::remove_all(folder); }
  fs::path folder;
};

TEST_F(Files, AreLoaded) {
  const fs::path file = folder / "a";
  std::ofstream(file) << std::string(200'000, 'x');
  EXPECT_EQ(load_file(file).size(), 200'000u);
  EXPECT_THAT(refusal([&] { load_file(file, 199'999); }),
              HasSubstr("has 200000 bytes, and 199999 are the most"));
  EXPECT_EQ(load_file(file, 200'000).size(), 200'000u);
}

TEST_F(Files, WhatIsNoFileIsRefusedWithoutWaiting) {
  EXPECT_THAT(refusal([&] { load_file(folder); }), HasSubstr("is a directory, and a regular file is wanted"));
  EXPECT_THAT(refusal([&] { load_file(folder / "missing"); }),
              testing::AllOf(HasSubstr("can't open"), HasSubstr("ENOENT")));
  ASSERT_EQ(mkfifo((folder / "fifo").c_str(), 0600), 0);
  EXPECT_THAT(refusal([&] { load_file(folder / "fifo"); }), HasSubstr("is a pipe"));
  EXPECT_THAT(refusal([] { load_file("/dev/zero"); }), HasSubstr("is a device"));
  EXPECT_THAT(refusal([] { load_file(std::string("a\0b", 3)); }), HasSubstr("byte 0"));
  EXPECT_THAT(refusal([] { load_file(""); }), HasSubstr("ENOENT"));
}

TEST(Corpus, EachFolderIsOfItsFormat) {
  MUSTER_NEEDS_CORPUS();
  const fs::path corpus = test::corpus();
  const auto all = [&](const char* folder, Format expected) {
    const auto files = test::files_in(corpus / folder);
    EXPECT_FALSE(files.empty());
    for (const fs::path& f : files) {
      const std::string text = test::text_of(f);
      EXPECT_EQ(recognise(text), text.empty() ? Format::unknown : expected) << f;
    }
  };
  all("nccl-topo", Format::nccl_xml);
  all("nccl-graph", Format::nccl_graph);
  all("hwloc", Format::hwloc_xml);
  all("nccl-logs", Format::unknown);
  all("perf-tables", Format::unknown);
  all("smi-topo", Format::smi_matrix);
}

}  // namespace
}  // namespace muster::topology
