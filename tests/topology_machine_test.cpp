// The model of a host: what holds while it is being built.
#include "topology/machine.h"

#include <gtest/gtest.h>

#include "muster/types.h"

namespace muster::topology {
namespace {

TEST(Machine, ReferencesOutliveWhatIsAddedLater) {
  Machine m;
  const Node& node = m[m.add({.kind = Kind::numa, .name = "NUMA0", .detail = Numa{.package = 7}})];
  const Numa& numa = m.numa(0);
  m.add({.kind = Kind::gpu, .name = "GPU0", .parent = 0, .detail = Gpu{}});
  const Link& link = m.links[static_cast<size_t>(m.link({0, 1, LinkKind::c2c, 5}))];
  for (int i = 0; i < 1000; ++i)
    m.link({0, m.add({.kind = Kind::gpu, .parent = 0, .detail = Gpu{}}), LinkKind::pcie});
  EXPECT_EQ(&node, &m[0]);
  EXPECT_EQ(&numa, &m.numa(0));
  EXPECT_EQ(&link, &m.links[0]);
  EXPECT_EQ(node.name, "NUMA0");
  EXPECT_EQ(numa.package, 7);
  EXPECT_EQ(link.count, 5);
}

TEST(Machine, NamesAreUnique) {
  Machine m;
  for (int i = 0; i < 3; ++i) m.add({.kind = Kind::nic, .name = "card", .detail = Nic{}});
  m.add({.kind = Kind::nic, .name = "card#9", .detail = Nic{}});
  m.add({.kind = Kind::nic, .name = "card", .detail = Nic{}});
  m.add({.kind = Kind::nic, .detail = Nic{}});
  EXPECT_EQ(m[0].name, "card");
  EXPECT_EQ(m[1].name, "card#2");
  EXPECT_EQ(m[2].name, "card#3");
  EXPECT_EQ(m[4].name, "card#10");
  EXPECT_EQ(m[5].name, "NIC");
  EXPECT_EQ(m.find("card#10"), 4);
  EXPECT_EQ(m.find("card#4"), kNone);
}

// Beside its PCI link a GPU may have C2C to the NUMA node that it hangs under.
TEST(Machine, TheLinkUpIsThePciLink) {
  Machine m;
  m.add({.kind = Kind::numa, .name = "NUMA0", .detail = Numa{}});
  m.add({.kind = Kind::gpu, .name = "GPU0", .parent = 0, .detail = Gpu{}});
  m.link({1, 0, LinkKind::c2c, 10, {450, Source::table}});
  EXPECT_EQ(m.up_link(1), kNone);
  complete(m);
  ASSERT_NE(m.up_link(1), kNone);
  EXPECT_EQ(m.links[static_cast<size_t>(m.up_link(1))].kind, LinkKind::pcie);
  EXPECT_EQ(m.up_link(0), kNone);
  EXPECT_NO_THROW(validate(m));
}

TEST(Machine, ReadersMistakesAreFound) {
  Machine above_itself;
  above_itself.add({.kind = Kind::pci_switch, .name = "a", .parent = 1});
  above_itself.add({.kind = Kind::pci_switch, .name = "b", .parent = 0});
  EXPECT_THROW(validate(above_itself), Error);
  Machine without_details;
  without_details.add({.kind = Kind::gpu, .name = "GPU0"});
  EXPECT_THROW(validate(without_details), Error);
  Machine to_nowhere;
  to_nowhere.add({.kind = Kind::numa, .name = "NUMA0", .detail = Numa{}});
  to_nowhere.link({0, 1, LinkKind::cpu});
  EXPECT_THROW(validate(to_nowhere), Error);
}

}  // namespace
}  // namespace muster::topology
