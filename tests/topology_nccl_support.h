// Small files of NCCL's format, and what is looked at when they were read.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "muster/types.h"
#include "topology/compare.h"
#include "topology/nccl_xml.h"
#include "topology/paths.h"

namespace muster::topology {

inline const std::string kCpu =
    R"(<cpu numaid="0" affinity="ff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">)";

inline std::string in_cpu(const std::string& inside) {
  return "<system version=\"1\">\n" + kCpu + inside + "</cpu>\n</system>\n";
}
inline std::string gpu_at(const char* busid, int dev, const std::string& links,
                          const char* attributes = R"(sm="80")") {
  return fmt::format(
      "<pci busid=\"{}\" class=\"0x030200\" link_speed=\"16.0 GT/s PCIe\" link_width=\"16\"><gpu dev=\"{}\" "
      "{}>{}</gpu></pci>\n",
      busid, dev, attributes, links);
}
inline std::string nvlink(const char* target, int count, const char* tclass = "0x030200") {
  return fmt::format("<nvlink target=\"{}\" count=\"{}\" tclass=\"{}\"/>", target, count, tclass);
}

inline Machine read(const std::string& text) {
  const Cluster c = read_nccl_xml(text, "f.xml");
  EXPECT_EQ(c.host_count(), 1);
  return c.machine_of(0);
}
inline std::string refusal(const std::string& text) {
  try {
    read_nccl_xml(text, "f.xml");
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Result::invalid_argument);
    return e.what();
  }
  return "read";
}
inline std::vector<std::string> ids(const Machine& m) {
  std::vector<std::string> r;
  for (const Finding& f : m.findings) r.push_back(f.id);
  return r;
}
inline const Finding& finding(const Machine& m, std::string_view id) {
  for (const Finding& f : m.findings)
    if (f.id == id) return f;
  static const Finding none;
  ADD_FAILURE() << "no finding " << id;
  return none;
}
inline PathClass between(const Machine& m, const char* a, const char* b) {
  return paths_from(m, m.find(a))[static_cast<size_t>(m.find(b))].path_class;
}
inline double rate(const Machine& m, const char* a, const char* b) {
  return paths_from(m, m.find(a))[static_cast<size_t>(m.find(b))].rate.gb_per_s;
}
inline std::string names(const Machine& m, Kind k) {
  std::vector<std::string> r;
  for (const int i : m.all(k)) r.push_back(m[i].name);
  return fmt::format("{}", fmt::join(r, " "));
}
inline void expect_round_trip(const Machine& m) {
  const std::string text = write_nccl_xml(m);
  std::string difference;
  EXPECT_TRUE(same_meaning(m, read(text), &difference)) << difference << text;
}

}  // namespace muster::topology
