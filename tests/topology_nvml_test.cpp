// GPUs as NVIDIA's library tells them; support/fake_nvml.cpp stands for it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include "support/fake_server.h"

namespace muster::topology {
namespace {

using test::FakeSystem;
using test::SystemImage;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class WithNvml : public testing::Test {
 protected:
  Machine detect_with(const SystemImage& image, const std::string& driver,
                      std::optional<std::string> visible = std::nullopt) {
    SystemImage both = image;
    both.files["/nvml"] = driver;
    const FakeSystem system(both);
    setenv("MUSTER_TEST_NVML", (system.root() + "/nvml").c_str(), 1);
    Machine m = detect({.root = system.root(), .nvml = FAKE_NVML, .visible_gpus = std::move(visible)});
    unsetenv("MUSTER_TEST_NVML");
    return m;
  }
  static std::string repeat(const std::string& line, int n) {
    std::string r;
    for (int i = 0; i < n; ++i) r += line + "\n";
    return r;
  }
  const std::string first_ = "gpu 00000000:13:00.0 9 0 GPU-aaaa NVIDIA H100 80GB HBM3\n",
                    second_ = "gpu 00000000:83:00.0 9 0 GPU-bbbb NVIDIA H100 80GB HBM3\n";
};

TEST_F(WithNvml, LinksBetweenGpus) {
  const Machine m = detect_with(server(), first_ + repeat("link 0 00000000:83:00.0", 6) + second_ +
                                              repeat("link 0 00000000:13:00.0", 6));
  EXPECT_THAT(ids(m), IsEmpty());
  EXPECT_EQ(class_between(m, "GPU0", "GPU1"), "NVL");
  EXPECT_EQ(nvlinks_of(m, m.find("GPU0")).links, 6);
  EXPECT_NEAR(nvlinks_of(m, m.find("GPU0")).rate.gb_per_s, 6 * 20.6, 1e-9);
  EXPECT_EQ(m.gpu(m.find("GPU1")).model, "NVIDIA H100 80GB HBM3");
  EXPECT_EQ(m.gpu(m.find("GPU1")).uuid, "GPU-bbbb");
  EXPECT_EQ(m.all(Kind::gpu).size(), 2u);
}

TEST_F(WithNvml, NumbersAreTheDrivers) {
  const Machine m = detect_with(server(), second_ + first_);
  EXPECT_EQ(m[m.find("GPU0")].pci->address.text(), "0000:83:00.0");
  EXPECT_EQ(m[m.find("GPU1")].pci->address.text(), "0000:13:00.0");
}

TEST_F(WithNvml, SwitchesAlsoWhereTheyCanNotBeRead) {
  // 4 NVSwitches: links to them by 5, 4, 4, 5, as in a DGX H100; the second GPU as a virtual machine sees it.
  std::string links;
  for (const auto& [address, n] : {std::pair{"00000000:05:00.0", 5},
                                   {"00000000:06:00.0", 4},
                                   {"00000000:07:00.0", 4},
                                   {"00000000:08:00.0", 5}})
    links += repeat("link 2 " + std::string(address), n);
  const Machine m = detect_with(
      server(), first_ + links + second_ + repeat("link 255 fffffff:ffff:ff", 10) + repeat("link 255 -", 8));
  EXPECT_THAT(ids(m), IsEmpty());
  EXPECT_EQ(class_between(m, "GPU0", "GPU1"), "NVL");
  for (const char* gpu : {"GPU0", "GPU1"}) {
    EXPECT_EQ(nvlinks_of(m, m.find(gpu)).links, 18);
    EXPECT_NEAR(nvlinks_of(m, m.find(gpu)).rate.gb_per_s, 370.8, 1e-9);
  }
  ASSERT_EQ(m.all(Kind::nvswitch).size(), 1u);
  EXPECT_EQ(std::get<NvSwitch>(m[m.all(Kind::nvswitch)[0]].detail).count, 4);
}

TEST_F(WithNvml, LinksThatAreDown) {
  Machine m = detect_with(
      server(), first_ + repeat("link 2 -", 16) + repeat("down", 2) + second_ + repeat("link 2 -", 18));
  EXPECT_EQ(finding(m, "nvlink-down").where, "GPU0");
  EXPECT_THAT(finding(m, "nvlink-down").text, HasSubstr("2 of 18"));
  // Cards of which none is connected are no cause for alarm.
  m = detect_with(server(), first_ + repeat("down", 12) + second_ + repeat("down", 12));
  EXPECT_FALSE(ids(m).contains("nvlink-down"));
  EXPECT_EQ(class_between(m, "GPU0", "GPU1"), "SYS");
}

TEST_F(WithNvml, GpusThatOnlyOneOfThemShows) {
  Machine m = detect_with(server(), first_);
  EXPECT_EQ(m.all(Kind::gpu).size(), 2u);
  EXPECT_FALSE(m[m.find("GPU0")].hidden);
  EXPECT_TRUE(m[m.find("GPU1")].hidden);
  EXPECT_THAT(finding(m, "gpu-hidden").text, HasSubstr("1 GPUs"));

  m = detect_with(server(), first_ + second_ + "gpu 00000000:99:00.0 9 0 GPU-cccc NVIDIA H100\n");
  EXPECT_EQ(m.all(Kind::gpu).size(), 3u);
  EXPECT_EQ(numa_name(m, "GPU2"), "NUMA0");
  EXPECT_EQ(finding(m, "gpu-not-in-sysfs").where, "GPU2");

  m = detect_with(
      {}, first_ + repeat("link 0 00000000:83:00.0", 4) + second_ + repeat("link 0 00000000:13:00.0", 4));
  EXPECT_EQ(class_between(m, "GPU0", "GPU1"), "NVL");
}

TEST_F(WithNvml, ADriverThatFailsHidesNothing) {
  const Machine m = detect_with(server(), "init 9\n");
  EXPECT_THAT(finding(m, "nvml-fails").text, HasSubstr("Driver Not Loaded"));
  for (const int g : m.all(Kind::gpu)) EXPECT_FALSE(m[g].hidden);
  EXPECT_THAT(ids(detect({.root = "/nowhere", .nvml = "/no/such/library.so"})), ElementsAre("numa-unknown"));
}

TEST_F(WithNvml, C2cToTheCpu) {
  const Machine m = detect_with(server(), first_ + "c2c 10 45000\n" + second_ + "c2c 10 0\n");
  const auto c2c = [&](const char* gpu) {
    for (const Link& l : m.links)
      if (l.kind == LinkKind::c2c && (l.a == m.find(gpu) || l.b == m.find(gpu))) return l;
    return Link{};
  };
  EXPECT_NEAR(c2c("GPU0").rate.gb_per_s, 450, 1e-9);  // Grace Hopper: 450 GB/s in each direction
  EXPECT_EQ(c2c("GPU0").rate.source, Source::read);
  EXPECT_EQ(c2c("GPU1").rate.source, Source::assumed);
  EXPECT_EQ(class_between(m, "GPU0", "NUMA0"), "C2C");
}

TEST_F(WithNvml, VisibleDevices) {
  const auto shown = [&](const std::string& visible) {
    const Machine m = detect_with(server(), first_ + second_, visible);
    std::string r;
    for (const int g : m.all(Kind::gpu))
      if (!m[g].hidden) r += m[g].name + " ";
    return r;
  };
  EXPECT_EQ(shown("0,1"), "GPU0 GPU1 ");
  EXPECT_EQ(shown("1"), "GPU1 ");
  EXPECT_EQ(shown("GPU-bb"), "GPU1 ");
  EXPECT_EQ(shown(""), "");
  EXPECT_EQ(shown("-1"), "");
  EXPECT_EQ(shown("1,7,0"), "GPU1 ");  // CUDA stops at what isn't there
  EXPECT_EQ(shown("NoDevFiles"), "");
}

}  // namespace
}  // namespace muster::topology
