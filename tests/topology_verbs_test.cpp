// RDMA devices as libibverbs tells them beside /sys; support/fake_verbs.cpp stands for it.
#include "topology/verbs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include "support/fake_server.h"

namespace muster::topology {
namespace {

using test::FakeSystem;
using test::SystemImage;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Numbers of the InfiniBand specification: states 1 down, 4 active; widths 2 is four lanes; speeds 64 HDR,
// 128 NDR; rdma-core's link layers 1 InfiniBand, 2 Ethernet.
constexpr const char* kBoth =
    "device mlx5_0 1 a088c20300091000\nport 4 2 128 1 16\ndevice mlx5_1 1 a088c20300092000\nport 4 2 64 2 "
    "255\n";

class WithVerbs : public testing::Test {
 protected:
  static Machine detect_with(const SystemImage& image, const std::string& verbs) {
    SystemImage both = image;
    both.files["/verbs"] = verbs;
    const FakeSystem system(both);
    setenv("MUSTER_TEST_VERBS", (system.root() + "/verbs").c_str(), 1);
    Machine m = detect({.root = system.root(), .verbs = FAKE_VERBS});
    unsetenv("MUSTER_TEST_VERBS");
    return m;
  }
  static const Port& port(const Machine& m, std::string_view name) { return m.port(m.find(name)); }
};

TEST_F(WithVerbs, WhereBothSayTheSameNothingIsFound) {
  SystemImage image = server();
  for (const char* device : {"mlx5_0", "mlx5_1"}) {
    const std::string folder = std::string("/sys/class/infiniband/") + device + "/";
    image.files[folder + "node_type"] = "1: CA\n";
    for (int i = 0; i < (device[5] == '0' ? 16 : 255); ++i)
      image.files[folder + "ports/1/gids/" + std::to_string(i)] = "fe80:0000:0000:0000:a088:c203:0009:1000\n";
  }
  const Machine m = detect_with(image, kBoth);
  EXPECT_THAT(ids(m), IsEmpty());
  EXPECT_EQ(m.all(Kind::port).size(), 3u);
  EXPECT_EQ(port(m, "mlx5_0").gbit_per_s, 400);
  EXPECT_EQ(port(m, "mlx5_1").network, Network::roce);
}

TEST_F(WithVerbs, FillsInWhatSysfsLacks) {
  SystemImage image = server();
  std::erase_if(image.files, [](const auto& f) {
    return f.first.starts_with("/sys/class/infiniband/");
  });  // a container may have the links alone
  const Machine m = detect_with(image, kBoth);
  EXPECT_THAT(ids(m), IsEmpty());
  EXPECT_EQ(port(m, "mlx5_0").gbit_per_s, 400);
  EXPECT_EQ(port(m, "mlx5_0").network, Network::infiniband);
  EXPECT_EQ(port(m, "mlx5_0").up, Answer3::yes);
  EXPECT_EQ(port(m, "mlx5_0").guid, "0xa088c20300091000");
  EXPECT_EQ(port(m, "mlx5_1").gbit_per_s, 200);
  EXPECT_EQ(port(m, "mlx5_1").network, Network::roce);
}

TEST_F(WithVerbs, DifferencesAreFoundAndSysfsStays) {
  const Machine m = detect_with(server(),
                                "device mlx5_0 1 a088c20300091000\nport 1 2 32 2 16\ndevice mlx5_1 1 "
                                "a088c20300092000\nport 4 2 64 2 255\n");
  EXPECT_THAT(ids(m), ElementsAre("verbs-disagrees"));
  EXPECT_EQ(finding(m, "verbs-disagrees").where, "mlx5_0");
  EXPECT_THAT(finding(m, "verbs-disagrees").text,
              AllOf(HasSubstr("link layer is InfiniBand and Ethernet"),
                    HasSubstr("state is active and not active"), HasSubstr("speed is 400 and 100 Gbit/s")));
  EXPECT_EQ(port(m, "mlx5_0").gbit_per_s, 400);
  EXPECT_EQ(port(m, "mlx5_0").network, Network::infiniband);
  EXPECT_EQ(port(m, "mlx5_0").up, Answer3::yes);
}

// A lane of XDR has 200 Gbit/s, for which libibverbs' byte has no number.
TEST_F(WithVerbs, SpeedsBeyondItsInterfaceAreNoDifference) {
  SystemImage image = server();
  image.files["/sys/class/infiniband/mlx5_0/ports/1/rate"] = "800 Gb/sec (4X XDR)\n";
  const Machine m = detect_with(image, kBoth);
  EXPECT_THAT(ids(m), testing::Not(testing::Contains("verbs-disagrees")));
  EXPECT_EQ(port(m, "mlx5_0").gbit_per_s, 800);
}

TEST_F(WithVerbs, DevicesThatProgramsCanNotUse) {
  Machine m = detect_with(server(), "device mlx5_0 1 a088c20300091000\nport 4 2 128 1 16\n");
  EXPECT_EQ(finding(m, "rdma-unusable").where, "mlx5_1");
  EXPECT_THAT(finding(m, "rdma-unusable").remedy, HasSubstr("ibverbs-providers"));

  m = detect_with(server(), std::string(kBoth) + "closed 13\n");
  EXPECT_EQ(finding(m, "rdma-unusable").where, "mlx5_1");
  EXPECT_THAT(finding(m, "rdma-unusable").text, HasSubstr("Permission denied"));
  EXPECT_EQ(port(m, "mlx5_1").gbit_per_s, 200);

  m = detect_with(server(), "fails 1\n");
  EXPECT_THAT(finding(m, "rdma-unusable").text, HasSubstr("Operation not permitted"));
}

TEST_F(WithVerbs, WithoutTheLibrary) {
  const FakeSystem system(server());
  const Machine m = detect({.root = system.root(), .verbs = "/no/such/library.so"});
  EXPECT_THAT(ids(m), ElementsAre("rdma-unusable"));
  EXPECT_THAT(finding(m, "rdma-unusable").text, HasSubstr("no libibverbs.so.1"));
  // Where there is no RDMA nothing is missing.
  EXPECT_THAT(ids(detect({.root = "/nowhere", .verbs = "/no/such/library.so"})), ElementsAre("numa-unknown"));
}

TEST_F(WithVerbs, DevicesThatSysfsDoesNotShow) {
  SystemImage image = server();
  for (const char* device : {"mlx5_0", "mlx5_1"}) {
    const std::string folder = std::string("/sys/class/infiniband/") + device;
    std::erase_if(image.files, [&](const auto& f) { return f.first.starts_with(folder); });
    image.links.erase(folder + "/device");
  }
  const Machine m =
      detect_with(image, "device mlx5_7 1 a088c20300091000\nport 4 2 128 1 16\nport 1 2 128 1 16\n");
  EXPECT_EQ(finding(m, "rdma-not-in-sysfs").where, "mlx5_7");
  EXPECT_EQ(port(m, "mlx5_7").gbit_per_s, 400);
  EXPECT_EQ(port(m, "mlx5_7:2").up, Answer3::no);
  EXPECT_EQ(m.nic_of(m.find("mlx5_7")), m.nic_of(m.find("mlx5_7:2")));
}

TEST_F(WithVerbs, IwarpIsNoRoce) {
  const Machine m = detect_with(server(),
                                "device mlx5_0 1 a088c20300091000\nport 4 2 128 1 16\n"
                                "device mlx5_1 4 a088c20300092000\nport 4 2 64 2 1\n");
  EXPECT_EQ(port(m, "mlx5_1").network, Network::ethernet);
}

TEST_F(WithVerbs, RoceNeedsGids) {
  const Machine m = detect_with(server(),
                                "device mlx5_0 1 a088c20300091000\nport 4 2 128 1 16\n"
                                "device mlx5_1 1 a088c20300092000\nport 4 2 64 2 0\n");
  EXPECT_THAT(ids(m), ElementsAre("gid-table-empty"));
  EXPECT_EQ(finding(m, "gid-table-empty").where, "mlx5_1");
}

}  // namespace
}  // namespace muster::topology
