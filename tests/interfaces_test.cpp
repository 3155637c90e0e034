#include "bootstrap/interfaces.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <net/if.h>

#include "base/error.h"
#include "bootstrap_support.h"

namespace muster {
namespace {

using test::failure_of;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Address address(const std::string& text) {
  Address a;
  if (inet_pton(AF_INET, text.c_str(), a.bytes.data()) == 1)
    a.kind = Address::Kind::ipv4;
  else if (inet_pton(AF_INET6, text.c_str(), a.bytes.data()) == 1)
    a.kind = Address::Kind::ipv6;
  return a;
}
Interface up(const std::string& name, const std::vector<std::string>& addresses, unsigned flags = 0) {
  Interface i{name, IFF_UP | IFF_RUNNING | flags, {}};
  for (const auto& a : addresses) i.addresses.push_back(address(a));
  return i;
}
Interface lo() { return up("lo", {"127.0.0.1", "::1"}, IFF_LOOPBACK); }
Interface down(Interface i) {
  i.flags &= ~static_cast<unsigned>(IFF_UP | IFF_RUNNING);
  return i;
}
Interface unplugged(Interface i) {
  i.flags &= ~static_cast<unsigned>(IFF_RUNNING);
  return i;
}

std::vector<std::string> names(const std::vector<Interface>& interfaces, std::string_view ifname,
                               std::string_view family = "", const Address& way = {}) {
  std::vector<std::string> r;
  for (const Source& s : choose_sources(interfaces, ifname, family, way))
    r.push_back(s.interface + " " + s.address.host_text());
  return r;
}

const std::vector<Interface> kVeths = {lo(), up("v1", {"10.0.1.1"}), up("v10", {"10.0.10.1"}),
                                       up("eth0", {"10.1.0.1"})};

TEST(Interfaces, NamesArePrefixes) {
  EXPECT_THAT(names(kVeths, "v1"), ElementsAre("v1 10.0.1.1", "v10 10.0.10.1"));
}
TEST(Interfaces, EqualSignMeansExact) { EXPECT_THAT(names(kVeths, "=v1"), ElementsAre("v1 10.0.1.1")); }
TEST(Interfaces, CaretExcludes) {
  EXPECT_THAT(names(kVeths, "^v1"), ElementsAre("eth0 10.1.0.1"));
  EXPECT_THAT(names(kVeths, "^=v1"), ElementsAre("v10 10.0.10.1", "eth0 10.1.0.1"));
  EXPECT_THAT(names(kVeths, "^v1,eth"), ElementsAre("lo 127.0.0.1"));
}
TEST(Interfaces, ListOrderIsPreference) {
  EXPECT_THAT(names(kVeths, "eth,v1"), ElementsAre("eth0 10.1.0.1", "v1 10.0.1.1", "v10 10.0.10.1"));
  EXPECT_THAT(names(kVeths, "v1,v10"), ElementsAre("v1 10.0.1.1", "v10 10.0.10.1"));
}
TEST(Interfaces, TheWayToTheOthersComesFirstUnlessAPersonChooses) {
  std::vector<Interface> all = kVeths;
  all.push_back(up("ib0", {"10.2.0.1", "10.3.0.1", "fd00::3"}));
  const Address way = all.back().addresses[1];
  EXPECT_THAT(names(all, "", "", way), ElementsAre("ib0 10.3.0.1", "v1 10.0.1.1", "v10 10.0.10.1", "eth0 10.1.0.1"));
  EXPECT_THAT(names(all, "^eth", "", way), ElementsAre("ib0 10.3.0.1", "v1 10.0.1.1", "v10 10.0.10.1"));
  EXPECT_THAT(names(all, "v1,ib", "", way), ElementsAre("v1 10.0.1.1", "v10 10.0.10.1", "ib0 10.3.0.1"));
  EXPECT_THAT(names(all, "", "AF_INET6", way), ElementsAre("ib0 fd00::3"));
  EXPECT_THAT(names(all, "^ib", "", way), ElementsAre("v1 10.0.1.1", "v10 10.0.10.1", "eth0 10.1.0.1"));
  all.push_back(up("v2", {"10.4.0.1"}));
  EXPECT_THAT(names(all, "v1,v", "", all.back().addresses[0]), ElementsAre("v1 10.0.1.1", "v10 10.0.10.1", "v2 10.4.0.1"));
  EXPECT_THAT(names(all, "v", "", all.back().addresses[0]), ElementsAre("v2 10.4.0.1", "v1 10.0.1.1", "v10 10.0.10.1"));
}
TEST(Interfaces, SpacesAndEmptyEntriesAreTolerated) {
  EXPECT_THAT(names(kVeths, " v1"), ElementsAre("v1 10.0.1.1", "v10 10.0.10.1"));
  EXPECT_THAT(names(kVeths, " = v1 ,, v10 "), ElementsAre("v1 10.0.1.1", "v10 10.0.10.1"));
  for (const char* nothing : {"", " ", ",", " , "})
    EXPECT_THAT(names(kVeths, nothing), ElementsAre("v1 10.0.1.1", "v10 10.0.10.1", "eth0 10.1.0.1"));
}

TEST(Interfaces, BridgesOfContainersAndVirtualMachinesServeOnlyWhenNamed) {
  const std::vector<Interface> all = {lo(), up("docker0", {"172.17.0.1"}), up("virbr0", {"192.168.122.1"})};
  EXPECT_THAT(names(all, ""), ElementsAre("lo 127.0.0.1"));
  EXPECT_THAT(names(all, "docker"), ElementsAre("docker0 172.17.0.1"));
  EXPECT_THAT(names(all, "virbr0"), ElementsAre("virbr0 192.168.122.1"));
}

TEST(Interfaces, WhatCannotServeIsSkipped) {
  std::vector<Interface> all = {lo()};
  for (int i = 0; i < 15; ++i) {
    const std::string n = std::to_string(i), a = "10.9.0." + n;
    all.push_back(i % 3 == 0   ? down(up("a" + n, {a}))
                  : i % 3 == 1 ? unplugged(up("b" + n, {a}))
                               : up("c" + n, {}));
  }
  all.push_back(up("z0", {"10.9.1.1"}));
  EXPECT_THAT(names(all, ""), ElementsAre("z0 10.9.1.1"));
}

TEST(Interfaces, LinkLocalOnlyWithoutBetter) {
  EXPECT_THAT(names({lo(), up("e0", {"fe80::1"}), up("e1", {"fd00::2"})}, ""), ElementsAre("e1 fd00::2"));
  EXPECT_THAT(names({lo(), up("e0", {"fe80::1"})}, ""), ElementsAre("e0 fe80::1"));
  EXPECT_THAT(names({up("e0", {"fe80::1", "fd00::1", "10.0.0.1"})}, ""), ElementsAre("e0 10.0.0.1"));
}

TEST(Interfaces, Family) {
  const std::vector<Interface> all = {lo(), up("e0", {"10.0.0.1", "fe80::1", "fd00::1"}),
                                      up("e1", {"10.0.1.1"})};
  EXPECT_THAT(names(all, "", "AF_INET6"), ElementsAre("e0 fd00::1"));
  EXPECT_THAT(names(all, "", "AF_INET"), ElementsAre("e0 10.0.0.1", "e1 10.0.1.1"));
  EXPECT_THAT(failure_of([&] { names(all, "e1", "AF_INET6"); }).text,
              AllOf(HasSubstr("IPv6"), HasSubstr("e1 (10.0.1.1)")));
  const auto wrong = failure_of([&] { names(all, "", "inet"); });
  EXPECT_EQ(wrong.code, Result::invalid_usage);
  EXPECT_THAT(wrong.text, AllOf(HasSubstr("NCCL_SOCKET_FAMILY='inet'"), HasSubstr("AF_INET6")));
  EXPECT_THAT(failure_of([&] { names({up("e1", {"10.0.1.1"})}, "", "AF_INET6"); }).text,
              HasSubstr("NCCL_SOCKET_FAMILY=AF_INET6"));
}

TEST(Interfaces, NothingUsableMeansAUnixSocket) {
  for (const auto& all : {std::vector<Interface>{}, {down(lo())}, {down(lo()), up("e0", {})}}) {
    const auto s = choose_sources(all, "", "");
    ASSERT_EQ(s.size(), 1u);
    EXPECT_EQ(s[0].address.kind, Address::Kind::local);
  }
}

TEST(Interfaces, UnknownNameListsThoseThereAre) {
  const auto f = failure_of([] {
    names({lo(), up("eth0", {"10.1.0.1", "fd00::1"}), down(up("ib0", {}))}, "nope0");
  });
  EXPECT_EQ(f.code, Result::invalid_usage);
  EXPECT_THAT(f.text, AllOf(HasSubstr("nope0"), HasSubstr("lo (127.0.0.1 ::1)"),
                            HasSubstr("eth0 (10.1.0.1 fd00::1)"), HasSubstr("ib0 (down)")));
  EXPECT_THAT(failure_of([] {
                names({lo(), up("v10", {"10.0.0.1"})}, "=v1");
              }).text,
              HasSubstr("is the name of no interface"));
  EXPECT_THAT(failure_of([] {
                names({lo(), down(up("v1", {"10.0.0.1"}))}, "v1");
              }).text,
              HasSubstr("v1 (down, 10.0.0.1)"));
}

TEST(Interfaces, AddressInsteadOfNameIsExplained) {
  for (const char* text : {"127.0.0.1", "10.0.0.0/8", "fd00::1", "^127.0.0.1", "eth0,10.1.0.1"}) {
    const auto f = failure_of([&] { names(kVeths, text); });
    EXPECT_EQ(f.code, Result::invalid_usage) << text;
    EXPECT_THAT(f.text, AllOf(HasSubstr("looks like an address"), HasSubstr("names of interfaces"),
                              HasSubstr("eth0")))
        << text;
  }
}

TEST(Interfaces, ThisMachineHasSome) {
  for (const Interface& i : list_interfaces()) EXPECT_FALSE(i.name.empty());
  EXPECT_FALSE(choose_sources(list_interfaces(), "", "").empty());
}

}  // namespace
}  // namespace muster
