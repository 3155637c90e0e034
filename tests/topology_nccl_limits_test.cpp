// NCCL's topology files that are incomplete, wrong, huge or no such files, and locales.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <clocale>
#include <locale>
#include <random>

#include "support/corpus.h"
#include "topology_nccl_support.h"

namespace muster::topology {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// What must be there is asked for by file, line, column, tag and attribute.
TEST(NcclXmlLimits, RequiredAttributes) {
  const std::string good = "<system version=\"1\">\n" + kCpu +
                           "\n<pci busid=\"0000:01:00.0\" class=\"0x030200\">\n<gpu dev=\"0\" sm=\"80\">\n"
                           "<nvlink target=\"0000:02:00.0\" count=\"2\" tclass=\"0x068000\"/>\n<c2c "
                           "bw=\"1000\" count=\"1\"/>\n</gpu></pci>\n"
                           "<pci busid=\"0000:02:00.0\" class=\"0x020000\">\n<nic>\n<net name=\"mlx5_0\" "
                           "dev=\"0\" speed=\"100000\"/>\n</nic></pci></cpu></system>";
  ASSERT_EQ(refusal(good), "read");
  const auto without = [&](std::string_view attribute, size_t nth = 0) {
    std::string text = good;
    size_t at = text.find(attribute);
    for (; nth > 0; --nth) at = text.find(attribute, at + 1);
    return text.erase(at, attribute.size());
  };
  EXPECT_EQ(refusal(without(" version=\"1\"")),
            "f.xml:1:2: <system>: attribute 'version' is missing: 1, or 2 for RCCL's dialect");
  EXPECT_EQ(refusal(without(" busid=\"0000:01:00.0\"")), "f.xml:3:2: <pci>: attribute 'busid' is missing");
  EXPECT_EQ(refusal(without(" target=\"0000:02:00.0\"")),
            "f.xml:5:2: <nvlink>: attribute 'target' is missing");
  EXPECT_EQ(refusal(without(" count=\"2\"")), "f.xml:5:2: <nvlink>: attribute 'count' is missing");
  EXPECT_EQ(refusal(without(" bw=\"1000\"")), "f.xml:6:2: <c2c>: attribute 'bw' is missing");
  EXPECT_EQ(refusal(without(" count=\"1\"")), "f.xml:6:2: <c2c>: attribute 'count' is missing");
  EXPECT_EQ(refusal(without(" name=\"mlx5_0\"")), "f.xml:10:2: <net>: attribute 'name' is missing");
  // What can be assumed is, and told the same way.
  for (const char* attribute : {"numaid", "arch", "vendor", "familyid", "modelid", "sm", "speed"}) {
    std::string text = good;
    const size_t at = text.find(fmt::format(" {}=", attribute));
    text.erase(at, text.find('"', text.find('"', at) + 1) - at + 1);
    const Machine m = read(text);
    const Finding& f = finding(m, "missing-attribute");
    EXPECT_THAT(f.text, HasSubstr(fmt::format("attribute '{}' is missing", attribute)));
    EXPECT_THAT(f.where, testing::StartsWith("f.xml:"));
  }
}

TEST(NcclXmlLimits, WhatIsNoTopology) {
  EXPECT_EQ(refusal(""), "f.xml is empty");
  EXPECT_EQ(refusal(" \n\n"), "f.xml is empty");
  EXPECT_THAT(refusal("<!-- nothing -->"), HasSubstr("no well-formed XML"));
  EXPECT_THAT(refusal("\x7f"
                      "ELF\x02\x01\x01"),
              HasSubstr("f.xml:1:"));
  EXPECT_EQ(refusal("<graphs version=\"1\"/>"),
            "f.xml:1:2: <graphs>: no NCCL topology, which begins with <system>");
  EXPECT_EQ(refusal("<system version=\"3\"/>"),
            "f.xml:1:2: <system>: version=\"3\" isn't known: 1 is NCCL's, 2 RCCL's");
  EXPECT_THAT(refusal("<system version=\"one\"/>"), HasSubstr("is no whole number"));
  EXPECT_THAT(refusal("<system version=\"1\"/>"), HasSubstr("there is no <cpu> in it"));
  EXPECT_THAT(refusal("<system version=\"1\">\n  <gpu dev=\"0\" net=\"mlx5_0\"/></system>"),
              AllOf(HasSubstr("f.xml:2:4: <gpu>:"), HasSubstr("FlagCX")));
  EXPECT_EQ(refusal("<system version=\"1\">\n<cpu numaid=\"0\">\n<pci busid=\"0000:01:00.0\">\n"),
            "f.xml:3:27: the file ends before its elements do: it was cut off");
  EXPECT_THAT(refusal("<system version=\"1\"><cpu></pci></system>"), HasSubstr("no well-formed XML"));
}

TEST(NcclXmlLimits, BadValues) {
  EXPECT_THAT(refusal(in_cpu("<pci busid=\"nowhere\"/>")),
              AllOf(HasSubstr("f.xml:2:"), HasSubstr("busid=\"nowhere\" is no PCI address")));
  EXPECT_THAT(refusal(in_cpu("<pci busid=\"0000:01:00.0\" class=\"gpu\"/>")),
              HasSubstr("class=\"gpu\" is no hexadecimal number"));
  EXPECT_THAT(refusal(in_cpu("<pci busid=\"0000:01:00.0\" vendor=\"0x10de0\"/>")),
              HasSubstr("vendor=\"0x10de0\" is more than 0xffff"));
  EXPECT_THAT(refusal(in_cpu("<pci busid=\"0000:01:00.0\" link_width=\"x16\"/>")),
              HasSubstr("link_width=\"x16\" is no whole number"));
  EXPECT_THAT(refusal(in_cpu(gpu_at("0000:01:00.0", 0, nvlink("0000:02:00.0", -1)))),
              HasSubstr("count=\"-1\" is not in 0..4096"));
  EXPECT_THAT(refusal(in_cpu("<nic><net name=\"\"/></nic>")), HasSubstr("is no name"));
  EXPECT_THAT(refusal(in_cpu("<nic><net name=\"a\" latency=\"fast\"/></nic>")),
              HasSubstr("latency=\"fast\" is no number"));
  EXPECT_THAT(refusal("<system version=\"1\"><cpu affinity=\"0,zz\"/></system>"),
              AllOf(HasSubstr("<cpu>"), HasSubstr("affinity=\"0,zz\""), HasSubstr("no mask")));
  EXPECT_THAT(refusal("<system version=\"1\"><cpu affinity=\"" + std::string(10'000, 'f') + "\"/></system>"),
              HasSubstr("no mask of up to 65536 CPUs"));
  // What kind of CPU it is is good to know, and no reason to refuse the rest.
  EXPECT_EQ(ids(read("<system version=\"1\"><cpu numaid=\"0\" arch=\"riscv64\"/></system>")),
            std::vector<std::string>{"unknown-cpu"});
  EXPECT_EQ(ids(read("<system version=\"1\"><cpu numaid=\"0\" arch=\"x86_64\" vendor=\"Acme\" familyid=\"6\" "
                     "modelid=\"1\"/></system>")),
            std::vector<std::string>{"unknown-cpu"});
}

// Beyond what NCCL's reader takes (256 elements, 16 attributes, 255 characters).
TEST(NcclXmlLimits, LargeFiles) {
  std::string inside;
  for (int i = 0; i < 10'000; ++i)
    inside += fmt::format("<pci busid=\"{:04x}:{:02x}:00.0\" class=\"0x060400\"/>\n", i / 256, i % 256);
  const Cluster wide = read_nccl_xml(in_cpu(inside), "f.xml");
  EXPECT_EQ(wide.machine_of(0).all(Kind::pci_switch).size(), 10'000u);
  EXPECT_THAT(wide.findings[0].text, HasSubstr("NCCL itself reads only"));
  EXPECT_THROW(write_nccl_xml(wide.machine_of(0)), Error);

  const std::string name(300, 'n');
  const Cluster odd = read_nccl_xml(
      in_cpu(fmt::format("<nic><net name=\"{}\" dev=\"0\" speed=\"1\" a=\"\" b=\"\" c=\"\" d=\"\" e=\"\" "
                         "f=\"\" g=\"\" h=\"\" i=\"\" j=\"\" k=\"\" l=\"\" m=\"\" n=\"\"/></nic>",
                         name)),
      "f.xml");
  EXPECT_EQ(odd.findings.size(), 2u) << "17 attributes, 300 characters";
  EXPECT_NE(odd.machine_of(0).find(name), kNone);
  EXPECT_THROW(write_nccl_xml(odd.machine_of(0)), Error);

  std::string deep = in_cpu([] {
    std::string s;
    for (int i = 0; i < 200; ++i) s += fmt::format("<pci busid=\"0000:{:02x}:00.0\" class=\"0x060400\">", i);
    s += gpu_at("0001:00:00.0", 0, "");
    for (int i = 0; i < 200; ++i) s += "</pci>";
    return s;
  }());
  const Machine m = read(deep);
  EXPECT_EQ(paths_from(m, m.find("GPU0"))[static_cast<size_t>(m.find("NUMA0"))].links.size(), 201u);
  std::string too_deep = "<system version=\"1\">";
  for (int i = 0; i < 100'000; ++i) too_deep += "<cpu>";
  EXPECT_THROW(read_nccl_xml(too_deep, "f.xml"), Error);

  std::string same;
  for (int i = 0; i < 10'000; ++i)
    same += "<pci busid=\"0000:01:00.0\" class=\"0x030200\"><gpu dev=\"0\" sm=\"80\"/></pci>\n";
  const Machine duplicates = read(in_cpu(same));
  EXPECT_EQ(duplicates.all(Kind::gpu).size(), 10'000u);
  EXPECT_EQ(duplicates.findings.size(), 2u) << "said once with a count: bus ids, numbers";
}

TEST(NcclXmlLimits, JunkIsRefusedOrRead) {
  const std::string good = test::text_of(test::data("two_sockets.xml"));
  std::mt19937 random(1);
  for (int i = 0; i < 3000; ++i) {
    std::string text = good;
    for (int n = 0; n < 3; ++n) {
      const size_t at = random() % text.size();
      switch (random() % 4) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text.erase(at, random() % 40);
          break;
        case 2:
          text.insert(at, text.substr(random() % text.size(), random() % 40));
          break;
        case 3:
          text.resize(at + 1);
          break;
      }
    }
    try {
      const Cluster c = read_nccl_xml(text, "f.xml");
      for (const auto& m : c.shapes) validate(*m);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Result::invalid_argument) << e.what();
    }
  }
}

// A comma as decimal point, by C's locale where it is installed and by C++'s in any case.
TEST(NcclXmlLimits, LocaleDoesNotMatter) {
  struct Comma : std::numpunct<char> {
    char do_decimal_point() const override { return ','; }
    char do_thousands_sep() const override { return '.'; }
    std::string do_grouping() const override { return "\3"; }
  };
  const std::string before_c = std::setlocale(LC_ALL, nullptr);
  const std::locale before = std::locale::global(std::locale(std::locale::classic(), new Comma));
  std::setlocale(LC_ALL, "de_DE.UTF-8");
  const Machine m =
      read(in_cpu("<pci busid=\"0000:01:00.0\" class=\"0x020000\" link_speed=\"2.5 GT/s PCIe\" "
                  "link_width=\"16\"><nic><net name=\"eth0\" dev=\"0\" speed=\"12500.5\" latency=\"12.5\" "
                  "maxconn=\"131072\"/></nic></pci>"));
  const std::string text = write_nccl_xml(m);
  std::locale::global(before);
  std::setlocale(LC_ALL, before_c.c_str());
  EXPECT_EQ(m.port(m.find("eth0")).latency_us, 12.5);
  EXPECT_DOUBLE_EQ(m.port(m.find("eth0")).gbit_per_s, 12.5005);
  EXPECT_EQ(m[m.find("0000:01:00.0")].pci->gigatransfers, 2.5);
  EXPECT_THAT(text, AllOf(HasSubstr("latency=\"12.5\""), HasSubstr("link_speed=\"2.5 GT/s PCIe\""),
                          HasSubstr("maxconn=\"131072\"")));
}

// A broken file leaves nothing behind, however often it is read.
TEST(NcclXmlLimits, ManyRefusals) {
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  const rlimit few{256, files.rlim_max};
  setrlimit(RLIMIT_NOFILE, &few);
  for (int i = 0; i < 1000; ++i)
    for (const char* text : {"<system version=\"2", "<system version=\"7\"/>",
                             "<system version=\"1\"><cpu numaid=\"99999999999999999999\"/></system>"})
      EXPECT_NE(refusal(text), "read");
  EXPECT_EQ(read(test::text_of(test::data("two_sockets.xml"))).all(Kind::gpu).size(), 4u);
  setrlimit(RLIMIT_NOFILE, &files);
}

}  // namespace
}  // namespace muster::topology
