// Settings of firmware, kernel and shell that stand in the way, in made-up systems.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/fake_server.h"

namespace muster::topology {
namespace {

using test::SystemImage;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(Environment, AcsOnBridgesAboveGpus) {
  SystemImage image = server();
  std::string& config = image.files[left("/0000:12:00.0/config")];
  config[0x100] = 0x01;  // advanced error reporting first, whose next is at 0x148
  config[0x102] = 0x01, config[0x103] = 0x14;
  config.replace(0x102, 2, std::string("\x81\x14", 2));  // version 1, next 0x148
  config[0x148] = 0x0d;
  config[0x14a] = 0x01;
  config[0x14e] = 0x1d;  // source validation, request and completion redirect, upstream forwarding
  const Machine m = detect_in(image);
  EXPECT_THAT(ids(m), ElementsAre("acs-enabled"));
  EXPECT_THAT(finding(m, "acs-enabled").text, HasSubstr("0000:12:00.0"));
  EXPECT_THAT(finding(m, "acs-enabled").remedy, HasSubstr("setpci"));
  config[0x14e] = 0x01;  // source validation alone redirects nothing
  EXPECT_THAT(ids(detect_in(image)), IsEmpty());
  config[0x148] = config[0x14a] = 0;
  config[0x14b] = static_cast<char>(0x14);  // a list that goes in circles
  config[0x14a] = static_cast<char>(0x81);
  EXPECT_THAT(ids(detect_in(image)), IsEmpty());
  config.resize(64);  // what others than root see
  EXPECT_THAT(ids(detect_in(image)), ElementsAre("acs-unreadable"));
  // A bridge that has no GPU below is of no interest.
  config = std::string(4096, '\0');
  image.files[left("/0000:12:01.0/config")].resize(64);
  EXPECT_THAT(ids(detect_in(image)), IsEmpty());
}

TEST(Environment, Iommu) {
  SystemImage image = server();
  image.files["/sys/class/iommu/dmar0/x"] = "";
  EXPECT_THAT(ids(detect_in(image)), ElementsAre("iommu-on"));
  image.files["/proc/cmdline"] = "quiet iommu=pt intel_iommu=on\n";
  EXPECT_THAT(ids(detect_in(image)), IsEmpty());
  image.files[left("gpu") + "iommu_group/type"] = "DMA-FQ\n";
  const Machine m = detect_in(image);
  EXPECT_THAT(ids(m), ElementsAre("iommu-translates"));
  EXPECT_THAT(finding(m, "iommu-translates").text, HasSubstr("1 GPUs"));
  image.files[left("gpu") + "iommu_group/type"] = "identity\n";
  image.files["/proc/cmdline"] = "quiet\n";
  EXPECT_THAT(ids(detect_in(image)), IsEmpty());
}

TEST(Environment, GpuDirectNeedsAModuleOrDmaBuf) {
  SystemImage image = server();
  const auto gpudirect = [&] {
    const Machine m = detect_in(image);
    return std::pair(m.port(m.find("mlx5_0")).gpudirect, ids(m));
  };
  image.files["/proc/driver/nvidia/version"] = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.1\n";
  EXPECT_EQ(gpudirect(), std::pair(Answer3::no, std::set<std::string>{"gpudirect-missing"}));
  EXPECT_EQ(detect_in(image).port(detect_in(image).find("eth0")).gpudirect, Answer3::unknown);
  image.files["/sys/module/nvidia_peermem/initstate"] = "live\n";
  EXPECT_EQ(gpudirect(), std::pair(Answer3::yes, std::set<std::string>{}));
  image.files.erase("/sys/module/nvidia_peermem/initstate");
  image.files["/proc/driver/nvidia/version"] =
      "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86\n";
  image.files["/proc/sys/kernel/osrelease"] = "5.4.0-1\n";
  EXPECT_EQ(gpudirect(), std::pair(Answer3::no, std::set<std::string>{"gpudirect-missing"}));
  for (const char* recent : {"5.12.0", "5.15.0-100-generic", "6.8", "10.0"}) {
    image.files["/proc/sys/kernel/osrelease"] = recent;
    EXPECT_EQ(gpudirect().first, Answer3::yes) << recent;
  }
  image.files.erase("/proc/driver/nvidia/version");
  EXPECT_EQ(gpudirect(), std::pair(Answer3::unknown, std::set<std::string>{"gpudirect-unknown"}));
}

TEST(Environment, LowLimitOfLockedMemory) {
  SystemImage image = server();
  image.files["/proc/self/limits"] =
      "Max locked memory         8388608              8388608              bytes     \n";
  const Machine m = detect_in(image);
  EXPECT_THAT(ids(m), ElementsAre("memlock-low"));
  EXPECT_THAT(finding(m, "memlock-low").text, HasSubstr("8192 KiB"));
  EXPECT_THAT(finding(m, "memlock-low").remedy, HasSubstr("ulimit -l unlimited"));
  // Who may lock everything, and who holds that in a namespace of its own alone.
  image.files["/proc/self/status"] = "Name:\tcat\nCapInh:\t0000000000000000\nCapEff:\t0000000000004000\nSeccomp:\t0\n";
  image.files["/proc/self/uid_map"] = "         0          0 4294967295\n";
  EXPECT_THAT(ids(detect_in(image)), IsEmpty());
  image.files["/proc/self/uid_map"] = "         0       1000          1\n";
  EXPECT_THAT(ids(detect_in(image)), ElementsAre("memlock-low"));
  image.files["/proc/self/uid_map"] = "         0          0 4294967295\n";
  image.files["/proc/self/status"] = "CapEff:\t000001ffffffbfff\n";
  EXPECT_THAT(ids(detect_in(image)), ElementsAre("memlock-low"));
  std::erase_if(image.links, [](const auto& l) { return l.first.starts_with("/sys/class/infiniband"); });
  std::erase_if(image.files, [](const auto& f) { return f.first.starts_with("/sys/class/infiniband"); });
  EXPECT_THAT(ids(detect_in(image)), IsEmpty()) << "nothing here is locked";
}

}  // namespace
}  // namespace muster::topology
