// RDMA devices of the virtual machine, as the real libibverbs tells them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "topology/verbs.h"

namespace muster::topology {
namespace {

TEST(SoftRoce, LibibverbsTellsDevicesAndPorts) {
  const VerbsAnswer answer = ask_verbs("libibverbs.so.1");
  ASSERT_TRUE(answer.asked);
  ASSERT_TRUE(answer.found);
  EXPECT_EQ(answer.problem, "");
  ASSERT_EQ(answer.devices.size(), 4u);
  for (const VerbsDevice& d : answer.devices) {
    EXPECT_THAT(d.name, testing::StartsWith("rxe"));
    EXPECT_EQ(d.problem, "");
    EXPECT_EQ(d.node_type, 1);
    ASSERT_EQ(d.ports.size(), 1u);
    EXPECT_EQ(d.ports[0].up, Answer3::yes);
    EXPECT_EQ(d.ports[0].link_layer, "Ethernet");
    EXPECT_GT(d.ports[0].gids.value_or(0), 1);
  }
}

}  // namespace
}  // namespace muster::topology
