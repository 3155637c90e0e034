// Where a machine's type is known from two sources, NCCL's XML and a table of nvidia-smi, both readers say
// the same of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/error.h"
#include "support/corpus.h"
#include "topology/host_description.h"
#include "topology/nccl_xml.h"
#include "topology/nearest_ports.h"
#include "topology/smi_matrix.h"

namespace muster::topology {
namespace {

Machine table(const std::string& name) {
  return read_smi_matrix(test::text_of(test::corpus() / "smi-topo" / (name + ".txt")), name);
}
Machine xml(const std::string& name) {
  const Cluster c = read_nccl_xml(test::text_of(test::corpus() / "nccl-topo" / (name + ".xml")), name);
  EXPECT_EQ(c.host_count(), 1);
  return c.machine_of(0);
}

// NVLinks of each GPU, by its number.
std::map<int, int> nvlinks(const Machine& m) {
  std::map<int, int> r;
  for (const int g : m.all(Kind::gpu)) r[m.gpu(g).index] = nvlinks_of(m, g).links;
  return r;
}

// The devices that are nearest to each GPU, by its number.
std::map<int, std::set<std::string>> nearest(const Machine& m) {
  std::map<int, std::set<std::string>> r;
  const auto choices = nearest_ports(m, {.pxn = false});
  const std::vector<int> gpus = m.all(Kind::gpu);
  for (size_t g = 0; g < gpus.size(); ++g)
    for (const PortChoice& c : choices[g])
      if (c.path.path_class == choices[g][0].path.path_class)
        r[m.gpu(gpus[g]).index].insert(m.port(c.port).device);
  return r;
}

// Which pairs of GPUs are SYS by PCI, NVLink aside: both formats tell that, while NCCL's has no host bridges
// to tell PHB from NODE, and a table shows no PCI between GPUs that NVLink joins.
std::vector<std::string> gpu_cells(const Machine& m) {
  const SmiTable t = smi_table_of(m);
  std::vector<std::string> r;
  for (size_t i = 0; i < t.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (t.devices[i].gpu && t.devices[j].gpu) {
        const SmiCell& c = t.cell(i, j);
        r.push_back(c.nvlinks ? c.text() : c.path_class == PathClass::sys ? "SYS" : "near");
      }
  return r;
}

// BM.GPU.H100.8 of Oracle: two ports beside each GPU.
TEST(TopologyAgreement, EightH100WithSixteenPorts) {
  MUSTER_NEEDS_CORPUS();
  const Machine a = table("oci-8xH100-18nic-ANSI"), b = xml("oci-BM.GPU.H100.8"),
                c = xml("oci-oke-BM.GPU.H100.8");
  for (const Machine* m : {&a, &b, &c}) {
    EXPECT_EQ(m->all(Kind::gpu).size(), 8u);
    for (const auto& [gpu, links] : nvlinks(*m)) EXPECT_EQ(links, 18) << "GPU" << gpu;
    for (const auto& [gpu, ports] : nearest(*m)) EXPECT_EQ(ports.size(), 2u) << "GPU" << gpu;
  }
  EXPECT_EQ(nearest(a), nearest(b));
  EXPECT_EQ(gpu_cells(a), gpu_cells(b));
  EXPECT_EQ(gpu_cells(a), gpu_cells(c));
}

// HGX H200: the same host, whose InfiniBand cards NCCL didn't see.
TEST(TopologyAgreement, EightH200) {
  MUSTER_NEEDS_CORPUS();
  const Machine a = table("simllm-8xH200-8nic-full"), b = xml("simllm-8xH200-vastai");
  EXPECT_EQ(nvlinks(a), nvlinks(b));
  EXPECT_EQ(nvlinks(a).size(), 8u);
  EXPECT_EQ(gpu_cells(a), gpu_cells(b));
}

// HGX A100: eight with twelve links.
TEST(TopologyAgreement, EightA100) {
  MUSTER_NEEDS_CORPUS();
  const Machine a = table("dgxa100-12nic-first-rows");
  for (const char* other : {"oci-oke-BM.GPU.A100-v2.8", "oci-oke-BM.GPU4.8"}) {
    const Machine b = xml(other);
    EXPECT_EQ(nvlinks(a), nvlinks(b)) << other;
    EXPECT_EQ(gpu_cells(a), gpu_cells(b)) << other;
  }
}

// DGX-1 with V100: the hybrid cube mesh.
TEST(TopologyAgreement, EightV100) {
  MUSTER_NEEDS_CORPUS();
  const Machine a = read_smi_matrix(test::text_of(test::data("smi/hybrid-cube-mesh.txt")),
                                    "hybrid-cube-mesh"),
                b = xml("blinkplus-8xV100");
  EXPECT_EQ(nvlinks(a), nvlinks(b));
  EXPECT_EQ(gpu_cells(a), gpu_cells(b));
}

// Hosts that are known by name are like real ones of their type: NVLinks, what lies between GPUs, and how many ports are
// beside each GPU, at which speed.
TEST(TopologyAgreement, ReadyHostsAreLikeRealOnes) {
  MUSTER_NEEDS_CORPUS();
  const auto ports_beside = [](const Machine& m) {
    std::map<int, size_t> r;
    for (const auto& [gpu, ports] : nearest(m)) r[gpu] = ports.size();
    return r;
  };
  const auto speeds = [](const Machine& m) {
    std::set<double> r;
    for (const int p : m.all(Kind::port)) r.insert(m.port(p).gbit_per_s);
    return r;
  };
  const auto ready = [](const char* name) { return *ready_host(name); };

  EXPECT_EQ(nvlinks(ready("dgx-1v")), nvlinks(xml("blinkplus-8xV100")));
  EXPECT_EQ(gpu_cells(ready("dgx-1v")), gpu_cells(xml("blinkplus-8xV100")));
  for (const char* real : {"oci-oke-BM.GPU.A100-v2.8", "oci-oke-BM.GPU4.8"}) {
    EXPECT_EQ(nvlinks(ready("dgx-a100")), nvlinks(xml(real))) << real;
    EXPECT_EQ(gpu_cells(ready("dgx-a100")), gpu_cells(xml(real))) << real;
  }
  EXPECT_EQ(nvlinks(ready("dgx-h100")), nvlinks(xml("oci-oke-BM.GPU.H100.8")));
  EXPECT_EQ(nvlinks(ready("dgx-b200")), nvlinks(xml("modal-b200-vm-v1")));
  EXPECT_EQ(nvlinks(ready("gb200-nvl72")), nvlinks(table("gb200-4gpu-8nic-gpu-numa-ids")));

  const Machine h200 = table("simllm-8xH200-8nic-full");
  EXPECT_EQ(nvlinks(ready("hgx-h200")), nvlinks(h200));
  EXPECT_EQ(ports_beside(ready("hgx-h200")), ports_beside(h200));
  const Machine nebius = xml("nebius-8xH100-vm");
  EXPECT_EQ(ports_beside(ready("dgx-h100")), ports_beside(nebius));
  EXPECT_EQ(speeds(ready("dgx-h100")), speeds(nebius));
  EXPECT_EQ(ports_beside(ready("aws-p4d")), ports_beside(xml("aws-p4d.24xl-rev1")));
  const Machine p5 = xml("aws-p5.48xl-8xH100-32EFA");
  EXPECT_EQ(ports_beside(ready("aws-p5")), ports_beside(p5));
  EXPECT_EQ(speeds(ready("aws-p5")), speeds(p5));
}

// What is written of an XML file as a table reads with the same classes, in each file of the corpus that is
// one host.
TEST(TopologyAgreement, TablesOfXmlFilesReadTheSame) {
  MUSTER_NEEDS_CORPUS();
  size_t files = 0;
  for (const auto& file : test::files_in(test::corpus() / "nccl-topo")) {
    Cluster c;
    try {
      c = read_nccl_xml(test::text_of(file), file.filename().string());
    } catch (const Error&) {
      continue;  // cut files, which the reader's own test lists
    }
    for (const auto& shape : c.shapes) {
      SCOPED_TRACE(file);
      const SmiTable t = smi_table_of(*shape);
      if (t.devices.empty() || !t.devices[0].gpu) continue;
      ++files;
      const Machine again = read_smi_matrix(write_smi_matrix(*shape), "written");
      for (const Finding& f : again.findings) EXPECT_NE(f.id, "smi-contradiction") << f.text;
      const SmiTable u = smi_table_of(again);
      ASSERT_EQ(u.size(), t.size());
      for (size_t i = 0; i < t.cells.size(); ++i)
        EXPECT_TRUE(u.cells[i].same(t.cells[i]))
            << t.devices[i / t.size()].label << " to " << t.devices[i % t.size()].label << ": "
            << t.cells[i].text() << " became " << u.cells[i].text();
    }
  }
  EXPECT_GT(files, 50u);
}

}  // namespace
}  // namespace muster::topology
