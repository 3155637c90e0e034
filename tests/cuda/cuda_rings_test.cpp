// Rings of a communicator of GPUs: those found on the topology, on eight GPUs of which not all are joined by NVLink.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cctype>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "cuda/gpus.h"
#include "device/cuda/memory.h"
#include "device/cuda/stream.h"
#include "nccl.h"
#include "plan/rings.h"
#include "support/outcome.h"
#include "topology/file.h"
#include "topology/read.h"

namespace muster {
namespace {

using test::Variable;
using testing::HasSubstr;

constexpr int kGpus = 8;
constexpr size_t kGuard = 64, kCount = 4003;  // floats
constexpr float kPoison = -77.f;

struct Joined {
  int a, b, links;
};
// A hybrid cube mesh: two squares with their diagonals, and an edge between each two of the same corner. GPUs 3 and 4,
// neighbours in the order of ranks, have no link.
constexpr Joined kMesh[] = {{0, 1, 1}, {0, 2, 1}, {0, 3, 2}, {0, 4, 2}, {1, 2, 2}, {1, 3, 1}, {1, 5, 2}, {2, 3, 2},
                            {2, 6, 1}, {3, 7, 1}, {4, 5, 1}, {4, 6, 1}, {4, 7, 2}, {5, 6, 2}, {5, 7, 1}, {6, 7, 2}};

bool joined(int a, int b) {
  for (const Joined& j : kMesh)
    if ((j.a == a && j.b == b) || (j.a == b && j.b == a)) return true;
  return false;
}

std::string bus(int gpu) { return "0000:" + std::to_string(10 + gpu) + ":00.0"; }  // as the simulated devices'

std::string mesh_xml() {
  std::ostringstream xml;
  xml << R"(<system version="1"><cpu numaid="0" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="85">)";
  for (int g = 0; g < kGpus; ++g) {
    xml << R"(<pci busid=")" << bus(g) << R"(" class="0x030200" link_speed="8 GT/s" link_width="16"><gpu dev=")" << g
        << R"(" sm="70" gdr="1">)";
    for (const Joined& j : kMesh)
      if (j.a == g || j.b == g)
        xml << R"(<nvlink target=")" << bus(j.a == g ? j.b : j.a) << R"(" count=")" << j.links
            << R"(" tclass="0x030200"/>)";
    xml << "</gpu></pci>";
  }
  xml << "</cpu></system>";
  return xml.str();
}

class CudaRings : public testing::Test {
 protected:
  void SetUp() override {
    MUSTER_NEEDS_GPUS(kGpus);
    folder_ = std::filesystem::temp_directory_path() / ("muster_rings." + std::to_string(getpid()));
    std::filesystem::create_directory(folder_);
    std::ofstream(topology()) << mesh_xml();
    file_.emplace("NCCL_TOPO_FILE", topology());
    debug_.emplace("NCCL_DEBUG", "INFO");
    topics_.emplace("NCCL_DEBUG_SUBSYS", "GRAPH,TUNING");
    log_.emplace("NCCL_DEBUG_FILE", (folder_ / "log").string());
  }
  void TearDown() override {
    for (ncclComm_t c : comms_) EXPECT_EQ(ncclCommDestroy(c), ncclSuccess);
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }
  std::string topology() const { return (folder_ / "mesh.xml").string(); }

  void connect() {
    comms_.resize(kGpus);
    ASSERT_EQ(ncclCommInitAll(comms_.data(), kGpus, nullptr), ncclSuccess) << ncclGetLastError(nullptr);
    for (int r = 0; r < kGpus; ++r) {
      streams_.push_back(std::make_unique<cuda::Stream>(r));
      in_.emplace_back(r, 4 * kGpus * kCount);
      out_.emplace_back(r, 4 * (kGpus * kCount + 2 * kGuard));
    }
  }

  static float value(int r, size_t i) { return static_cast<float>((r * 31 + static_cast<int>(i % 1009)) % 97); }
  static float sum(size_t i) {
    float s = 0;
    for (int r = 0; r < kGpus; ++r) s += value(r, i);
    return s;
  }
  const float* input(int r) const { return reinterpret_cast<const float*>(in_[static_cast<size_t>(r)].data()); }
  float* output(int r) const { return reinterpret_cast<float*>(out_[static_cast<size_t>(r)].data()) + kGuard; }
  ncclComm_t comm(int r) const { return comms_[static_cast<size_t>(r)]; }
  cudaStream_t stream(int r) const { return streams_[static_cast<size_t>(r)]->handle(); }

  // `call(r)` of all ranks, whose results must be `want(r, i)`, `n` of them; of rank `only` if that is one.
  template <class Launch, class Want>
  void expect(const char* what, size_t n, int only, Launch call, Want want) {
    for (int r = 0; r < kGpus; ++r) {
      std::vector<float> values(kGpus * kCount), poison(kGpus * kCount + 2 * kGuard, kPoison);
      for (size_t i = 0; i < values.size(); ++i) values[i] = value(r, i);
      in_[static_cast<size_t>(r)].write(0, values.data(), 4 * values.size());
      out_[static_cast<size_t>(r)].write(0, poison.data(), 4 * poison.size());
    }
    ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    for (int r = 0; r < kGpus; ++r) ASSERT_EQ(call(r), ncclSuccess) << ncclGetLastError(comm(r));
    ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
    for (auto& s : streams_) s->synchronize();
    for (int r = 0; r < kGpus; ++r) {
      std::vector<float> got(kGpus * kCount + 2 * kGuard);
      out_[static_cast<size_t>(r)].read(0, got.data(), 4 * got.size());
      for (size_t k = 0; k < got.size(); ++k) {
        const bool inside = k >= kGuard && k < kGuard + n && (only < 0 || only == r);
        ASSERT_EQ(got[k], inside ? want(r, k - kGuard) : kPoison) << what << ", rank " << r << ", element " << k;
      }
    }
  }

  std::string log() const {
    std::ostringstream all;
    all << std::ifstream(folder_ / "log").rdbuf();
    return all.str();
  }
  // By number, what the ranks say of it.
  std::map<int, std::set<std::string>> rings_in_log() const {
    std::map<int, std::set<std::string>> rings;
    std::istringstream lines(log());
    const std::string mark = ": ring ";
    for (std::string line; std::getline(lines, line);) {
      const size_t at = line.find(mark);
      if (at == std::string::npos || line.find("communicator") == std::string::npos) continue;
      const size_t colon = line.find(": ", at + mark.size());
      if (colon == std::string::npos || !std::isdigit(static_cast<unsigned char>(line[at + mark.size()]))) continue;
      rings[std::stoi(line.substr(at + mark.size()))].insert(line.substr(colon + 2));
    }
    return rings;
  }
  // Those that are found on the topology's file, as `muster plan` does.
  void expect_rings(int channels) const {
    const topology::Cluster mesh = topology::read_topology(topology::load_file(topology()), topology());
    std::vector<RankPlace> places;
    for (int g = 0; g < kGpus; ++g) places.push_back({0, g});
    const auto orders = orders_of(rings_of_channels(mesh, places, channels));
    const auto used = rings_in_log();
    ASSERT_EQ(used.size(), orders.size());
    for (size_t i = 0; i < orders.size(); ++i) {
      std::string text;
      for (size_t k = 0; k < orders[i].size(); ++k) {
        text += (k ? " " : "") + std::to_string(orders[i][k]);
        EXPECT_TRUE(joined(orders[i][k], orders[i][(k + 1) % kGpus])) << "ring " << i << ", place " << k;
      }
      EXPECT_THAT(used.at(static_cast<int>(i)), testing::ElementsAre(text)) << "ring " << i;
    }
  }

 private:
  std::filesystem::path folder_;
  std::optional<Variable> file_, debug_, topics_, log_;
  std::vector<ncclComm_t> comms_;
  std::vector<std::unique_ptr<cuda::Stream>> streams_;
  std::vector<cuda::DeviceMemory> in_, out_;
};

TEST_F(CudaRings, GoAlongNvlinksOnly) {
  const Variable algorithm("MUSTER_ALGO", "ring"), channels("NCCL_MIN_NCHANNELS", "6");
  ASSERT_NO_FATAL_FAILURE(connect());
  expect("all-reduce", kCount, -1,
         [&](int r) { return ncclAllReduce(input(r), output(r), kCount, ncclFloat, ncclSum, comm(r), stream(r)); },
         [](int, size_t i) { return sum(i); });
  expect("all-gather", kGpus * kCount, -1,
         [&](int r) { return ncclAllGather(input(r), output(r), kCount, ncclFloat, comm(r), stream(r)); },
         [](int, size_t i) { return value(static_cast<int>(i / kCount), i % kCount); });
  expect("reduce-scatter", kCount, -1,
         [&](int r) { return ncclReduceScatter(input(r), output(r), kCount, ncclFloat, ncclSum, comm(r), stream(r)); },
         [](int r, size_t i) { return sum(static_cast<size_t>(r) * kCount + i); });
  EXPECT_THAT(log(), HasSubstr("6 channels, "));
  EXPECT_THAT(log(), HasSubstr("6 rings found on the topology, 133.2 GB/s together"));
  expect_rings(6);
}

// The double links make two rings of twice the speed.
TEST_F(CudaRings, AsManyAsChannelsMayBe) {
  const Variable algorithm("MUSTER_ALGO", "chain"), least("NCCL_MIN_NCHANNELS", "2"), most("NCCL_MAX_NCHANNELS", "2");
  ASSERT_NO_FATAL_FAILURE(connect());
  constexpr int kRoot = 5;
  expect("broadcast", kCount, -1,
         [&](int r) { return ncclBroadcast(input(r), output(r), kCount, ncclFloat, kRoot, comm(r), stream(r)); },
         [](int, size_t i) { return value(kRoot, i); });
  expect("reduce", kCount, kRoot,
         [&](int r) { return ncclReduce(input(r), output(r), kCount, ncclFloat, ncclSum, kRoot, comm(r), stream(r)); },
         [](int, size_t i) { return sum(i); });
  EXPECT_THAT(log(), HasSubstr("2 rings found on the topology, 88.8 GB/s together"));
  expect_rings(2);
}

}  // namespace
}  // namespace muster
