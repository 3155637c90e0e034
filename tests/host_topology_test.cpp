// Topology files that communicators read and write as their ranks meet.
#include "comm/host_topology.h"

#include <gmock/gmock.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <fstream>
#include <sstream>

#include "bootstrap_support.h"
#include "muster/muster.h"
#include "support/ranks.h"
#include "topology/nccl_xml.h"

namespace muster {
namespace {

using namespace test;  // NOLINT
using testing::HasSubstr;

constexpr const char* kTwoGpus = R"(<system version="1">
  <cpu numaid="0" affinity="ff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">
    <pci busid="ffff:ff:01.0" class="0x060400" link_speed="32 GT/s" link_width="16">
      <pci busid="00a1:00:00.0" class="0x030200" link_speed="32 GT/s" link_width="16"/>
      <pci busid="00a2:00:00.0" class="0x030200" link_speed="32 GT/s" link_width="16"/>
    </pci>
  </cpu>
</system>
)";

class TopologyFiles : public testing::Test {
 protected:
  TopologyFiles() {
    char name[] = "/tmp/muster_topology_XXXXXX";
    folder_ = mkdtemp(name);
  }
  ~TopologyFiles() override { shell("rm -r " + folder_); }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path(name)) << text;
    return path(name);
  }
  static std::string read(const std::string& file) {
    std::stringstream s;
    s << std::ifstream(file).rdbuf();
    return s.str();
  }
  std::string folder_;
};

// What each of two ranks is told when they meet.
std::vector<Failure> meet() {
  const UniqueId id = make_unique_id();
  return in_threads(2, [&](int r) {
    Communicator c = Communicator::init(2, r, id);
    int x = 1, y = -1;
    c.all_reduce(&x, &y, 1, DataType::int32, RedOp::sum);
    EXPECT_EQ(y, 2);
  });
}

TEST_F(TopologyFiles, OneRankWritesWhatItsHostIs) {
  const ScopedEnv file("NCCL_TOPO_FILE", write("two.xml", kTwoGpus));
  for (const int rank : {0, 1}) {
    const std::string dump = path("dump" + std::to_string(rank));
    const ScopedEnv to("NCCL_TOPO_DUMP_FILE", dump), by("NCCL_TOPO_DUMP_FILE_RANK", std::to_string(rank));
    for (const Failure& f : meet()) EXPECT_EQ(f.text, "");
    const topology::Cluster c = topology::read_nccl_xml(read(dump), dump);
    ASSERT_EQ(c.host_count(), 1);
    const topology::Machine& m = c.machine_of(0);
    EXPECT_EQ(m.all(topology::Kind::gpu).size(), 2u);
    const int gpu = m.find(*topology::PciAddress::parse("00a2:00:00.0"));
    ASSERT_NE(gpu, topology::kNone);
    EXPECT_EQ(m[m[gpu].parent].kind, topology::Kind::pci_switch);
  }
}

TEST_F(TopologyFiles, AMistakeIsToldToAllRanks) {
  std::string wrong = kTwoGpus;
  wrong.replace(wrong.find("busid=\"00a1"), 6, "bussid");
  for (const auto& [name, text, expected] : std::vector<std::array<std::string, 3>>{
           {"wrong.xml", wrong, "wrong.xml:4:"}, {"cut.xml", std::string(kTwoGpus).substr(0, 200), "cut.xml:"}, {"empty.xml", "", "empty"}}) {
    const ScopedEnv file("NCCL_TOPO_FILE", write(name, text));
    const std::vector<Failure> failures = meet();
    for (const Failure& f : failures) EXPECT_THAT(f.text, HasSubstr(expected));
  }
  const ScopedEnv folder("NCCL_TOPO_FILE", folder_);
  for (const Failure& f : meet()) EXPECT_THAT(f.text, HasSubstr("directory"));
  ASSERT_EQ(mkfifo(path("fifo").c_str(), 0600), 0);
  const ScopedEnv fifo("NCCL_TOPO_FILE", path("fifo"));
  for (const Failure& f : meet()) EXPECT_NE(f.text, "");
}

TEST_F(TopologyFiles, AMissingOneIsAWarning) {
  const ScopedEnv file("NCCL_TOPO_FILE", path("missing.xml"));
  testing::internal::CaptureStderr();
  for (const Failure& f : meet()) EXPECT_EQ(f.text, "");
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("missing.xml"));
}

TEST_F(TopologyFiles, AFileThatCantBeWrittenIsAWarning) {
  const ScopedEnv to("NCCL_TOPO_DUMP_FILE", path("no/such/folder"));
  testing::internal::CaptureStderr();
  for (const Failure& f : meet()) EXPECT_EQ(f.text, "");
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("no/such/folder: ENOENT"));
}

// Each init leaves as many descriptors as it found.
TEST_F(TopologyFiles, NothingIsLeftOpen) {
  const ScopedEnv file("NCCL_TOPO_FILE", write("broken.xml", "<system version=\"1\"><cpu"));
  meet();
  const int before = open_fds();
  for (int i = 0; i < 20; ++i) meet();
  EXPECT_TRUE(eventually([&] { return open_fds() <= before; })) << open_fds() << " open, " << before << " before";
}

}  // namespace
}  // namespace muster
