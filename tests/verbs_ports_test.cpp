// Which RDMA ports, GIDs and paths are chosen, on hosts as people have them.
#include "transports/verbs/ports.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "base/error.h"
#include "support/outcome.h"
#include "transports/verbs/adapter.h"
#include "transports/verbs/hello.h"
#include "transports/verbs/settings.h"

namespace muster::verbs {
namespace {

using test::outcome_of;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Gid gid(uint32_t index, const char* address, Gid::Kind kind, uint8_t bits = 0) {
  Gid g{.index = index, .kind = kind, .subnet_bits = bits};
  if (inet_pton(AF_INET, address, g.bytes.data() + 12) == 1)
    g.bytes[10] = g.bytes[11] = 0xff;
  else
    EXPECT_EQ(inet_pton(AF_INET6, address, g.bytes.data()), 1) << address;
  return g;
}
constexpr auto kV1 = Gid::Kind::roce_v1, kV2 = Gid::Kind::roce_v2, kIb = Gid::Kind::infiniband;

// As Mellanox's driver fills the table: each address twice, link-local ones first.
Port roce(const std::string& device, const char* ipv4, uint8_t bits = 24, double rate = 100) {
  return {.device = device, .active = true, .mtu = 5, .gbit_per_s = rate,
          .gids = {gid(0, "fe80::ba59:9fff:fe00:1", kV1), gid(1, "fe80::ba59:9fff:fe00:1", kV2), gid(2, ipv4, kV1, static_cast<uint8_t>(96 + bits)),
                   gid(3, ipv4, kV2, static_cast<uint8_t>(96 + bits))}};
}
Port infiniband(const std::string& device, uint16_t lid, const char* prefix = "fe80::") {
  return {.device = device, .active = true, .infiniband = true, .lid = lid, .mtu = 5, .gbit_per_s = 400,
          .gids = {gid(0, (std::string(prefix) + "1:" + std::to_string(lid)).c_str(), kIb, 64)}};
}

std::vector<std::string> names(const std::vector<Port>& ports) {
  std::vector<std::string> r;
  for (const Port& p : ports) r.push_back(p.name());
  return r;
}
std::vector<uint32_t> indices(const Port& p) {
  std::vector<uint32_t> r;
  for (const Gid& g : p.gids) r.push_back(g.index);
  return r;
}
std::vector<Port> choose(const std::vector<Port>& all, const PortWishes& w = {}) {
  std::string why;
  return choose_ports(all, w, why);
}
std::string why_none(const std::vector<Port>& all, const PortWishes& w = {}) {
  std::string why;
  EXPECT_THAT(choose_ports(all, w, why), IsEmpty());
  return why;
}

// --- GIDs ---

TEST(Gids, RoceV2OfIpv4ComesFirstAndLinkLocalLast) {
  EXPECT_THAT(indices(choose({roce("mlx5_0", "10.0.0.1")})[0]), ElementsAre(3, 2, 1));
}

TEST(Gids, OfAPortThatHasOnlyLinkLocalOnesServe) {
  Port p = roce("mlx5_0", "10.0.0.1");
  p.gids.resize(2);
  EXPECT_THAT(indices(choose({p})[0]), ElementsAre(1, 0));
}

TEST(Gids, OfIpv6OnlyHostsServe) {
  Port p = roce("mlx5_0", "2001:db8::1");
  EXPECT_THAT(indices(choose({p})[0]), ElementsAre(3, 2, 1));
}

TEST(Gids, VersionFamilyRangeAndIndexAreAsWished) {
  Port p = roce("mlx5_0", "10.0.0.1");
  p.gids.push_back(gid(4, "2001:db8::1", kV2));
  p.gids.push_back(gid(5, "192.168.7.1", kV2));
  EXPECT_THAT(indices(choose({p}, {.roce_version = 1})[0]), ElementsAre(2, 3, 5));
  EXPECT_THAT(indices(choose({p}, {.ipv6 = true})[0]), ElementsAre(4, 3, 5));
  EXPECT_THAT(indices(choose({p}, {.range = "192.168.0.0/16"})[0]), ElementsAre(5));
  EXPECT_THAT(indices(choose({p}, {.range = "2001:db8::/32"})[0]), ElementsAre(4));
  EXPECT_THAT(indices(choose({p}, {.gid_index = 1})[0]), ElementsAre(1));
}

TEST(Gids, ThatAreWishedForAndMissingAreSaid) {
  EXPECT_EQ(why_none({roce("mlx5_0", "10.0.0.1")}, {.gid_index = 9}), "mlx5_0:1 has no GID at NCCL_IB_GID_INDEX=9");
  EXPECT_THAT(why_none({roce("mlx5_0", "10.0.0.1")}, {.range = "172.16.0.0/12"}), HasSubstr("mlx5_0:1 has no GID in NCCL_IB_ADDR_RANGE=172.16.0.0/12"));
}

// --- ports ---

TEST(Ports, ThoseThatServeAreTakenAndOfTheOthersItIsSaidWhyNot) {
  Port down = roce("mlx5_1", "10.0.1.1");
  down.active = false;
  Port bare = roce("mlx5_2", "10.0.2.1");
  bare.gids.clear();
  EXPECT_THAT(names(choose({down, bare, roce("mlx5_0", "10.0.0.1")})), ElementsAre("mlx5_0:1"));
  EXPECT_THAT(why_none({down, bare}), AllOf(HasSubstr("mlx5_1:1 is not active"), HasSubstr("mlx5_2:1 has no GID: its network interface has no address")));
  EXPECT_THAT(why_none({}), HasSubstr("this host has no RDMA devices"));
}

// A container that sees the virtual functions of all others.
TEST(Ports, ManyVirtualFunctionsWithoutAddressesDontHideTheOneThatServes) {
  std::vector<Port> all;
  for (int i = 0; i < 34; ++i) {
    Port p = roce("mlx5_" + std::to_string(i), "10.0.0.1");
    if (i != 33) p.gids.clear();
    all.push_back(p);
  }
  EXPECT_THAT(names(choose(all)), ElementsAre("mlx5_33:1"));
}

TEST(Ports, SlowOnesServeOnlyWhereTheyAreNamed) {
  const std::vector<Port> all = {roce("mlx5_bond_0", "10.0.0.1", 24, 25), roce("mlx5_0", "10.1.0.1", 24, 200), roce("mlx5_1", "10.2.0.1", 24, 200)};
  EXPECT_THAT(names(choose(all)), ElementsAre("mlx5_0:1", "mlx5_1:1"));
  EXPECT_THAT(names(choose(all, {.hca = "^mlx5_0"})), ElementsAre("mlx5_1:1"));
  EXPECT_THAT(names(choose(all, {.hca = "mlx5_0,mlx5_bond_0"})), ElementsAre("mlx5_0:1", "mlx5_bond_0:1"));
}

TEST(Ports, HcaListsAreReadAsNcclReadsThem) {
  std::vector<Port> all = {roce("mlx5_1", "10.0.0.1"), roce("mlx5_10", "10.0.0.2"), roce("mlx5_2", "10.0.0.3"), roce("mlx5_2", "10.0.0.4")};
  all[3].number = 2;
  const auto with = [&](const char* hca) { return names(choose(all, {.hca = hca})); };
  EXPECT_THAT(with("mlx5_1"), ElementsAre("mlx5_1:1", "mlx5_10:1"));
  EXPECT_THAT(with("=mlx5_1"), ElementsAre("mlx5_1:1"));
  EXPECT_THAT(with("=mlx5_1,mlx5_2:2"), ElementsAre("mlx5_1:1", "mlx5_2:2"));
  EXPECT_THAT(with("^=mlx5_1"), ElementsAre("mlx5_10:1", "mlx5_2:1", "mlx5_2:2"));
  EXPECT_THAT(with("^mlx5_1, mlx5_2:1"), ElementsAre("mlx5_2:2"));
  EXPECT_THAT(why_none(all, {.hca = "mlx4"}), HasSubstr("mlx5_1:1 is not among NCCL_IB_HCA=mlx4"));
}

TEST(Ports, OfInfiniBandNeedALid) {
  EXPECT_THAT(names(choose({infiniband("mlx5_0", 7)})), ElementsAre("mlx5_0:1"));
  Port p = infiniband("mlx5_0", 0);
  p.gids.clear();
  EXPECT_THAT(why_none({p}), HasSubstr("is a subnet manager running?"));
}

TEST(Ports, WishesThatCantBeReadAreErrors) {
  const auto reads = [](const char* name, const char* value) {
    setenv(name, value, 1);
    const auto o = outcome_of([] { PortWishes::from(Options::inspect("/nonexistent")); });
    unsetenv(name);
    return o;
  };
  for (const auto& [name, value] : std::vector<std::pair<const char*, const char*>>{{"NCCL_IB_HCA", "mlx5_0:one"},
                                                                                   {"NCCL_IB_ADDR_FAMILY", "IPv6"},
                                                                                   {"NCCL_IB_ADDR_RANGE", "10.0.0.0"},
                                                                                   {"NCCL_IB_ADDR_RANGE", "10.0.0.0/33"},
                                                                                   {"NCCL_IB_ROCE_VERSION_NUM", "3"}}) {
    const auto o = reads(name, value);
    EXPECT_EQ(o.code, Result::invalid_usage) << name << "=" << value;
    EXPECT_THAT(o.text, AllOf(HasSubstr(name), HasSubstr(value)));
  }
  EXPECT_EQ(reads("NCCL_IB_GID_INDEX", "-1").text, "");
}

// --- paths ---

std::vector<std::string> first_paths(const std::vector<Port>& local, const std::vector<Port>& remote, size_t n) {
  std::vector<std::string> r;
  for (const Path& p : possible_paths(local, remote)) {
    if (r.size() == n) break;
    r.push_back(fmt::format("{}-{}", local[p.local].device, remote[p.remote].device));
  }
  return r;
}
std::vector<std::string> rails(const std::vector<Port>& local, const std::vector<Port>& remote) {
  std::vector<std::string> r;
  for (const Path& p : rails_of(possible_paths(local, remote))) r.push_back(fmt::format("{}-{}", local[p.local].device, remote[p.remote].device));
  return r;
}

TEST(Paths, GoInsideASubnet) {
  const auto a = choose({roce("a0", "10.1.0.1"), roce("a1", "10.2.0.1")}), b = choose({roce("b0", "10.2.0.2"), roce("b1", "10.1.0.2")});
  EXPECT_THAT(first_paths(a, b, 2), ElementsAre("a0-b1", "a1-b0"));
  EXPECT_THAT(rails(a, b), ElementsAre("a0-b1", "a1-b0"));
}

TEST(Paths, InOneSubnetPortsAtTheSamePlaceBelongTogether) {
  const auto a = choose({roce("a0", "10.1.0.1", 16), roce("a1", "10.1.0.2", 16)}), b = choose({roce("b0", "10.1.0.3", 16), roce("b1", "10.1.0.4", 16)});
  EXPECT_THAT(rails(a, b), ElementsAre("a0-b0", "a1-b1"));
}

TEST(Paths, OfUnequalSetsUseWhatBothHave) {
  const auto a = choose({roce("a0", "10.1.0.1"), roce("a1", "10.2.0.1"), roce("a2", "10.3.0.1")}), b = choose({roce("b0", "10.3.0.2")});
  EXPECT_THAT(rails(a, b), ElementsAre("a2-b0"));
  const auto mixed = choose({roce("b0", "10.3.0.2", 24, 400), infiniband("b1", 4)});
  EXPECT_THAT(rails(a, mixed), ElementsAre("a2-b0"));
}

TEST(Paths, TryTheBestGidsOfAllPortsBeforeOthers) {
  const auto a = choose({roce("a0", "10.1.0.1")}), b = choose({roce("b0", "10.1.0.2")});
  const auto paths = possible_paths(a, b);
  ASSERT_EQ(paths.size(), 3u);  // RoCE v2, RoCE v1, link-local v2
  EXPECT_EQ(text_of(paths[0], a, b), "a0:1 10.1.0.1 (index 3, RoCE v2) to b0:1 10.1.0.2 (index 3, RoCE v2)");
  EXPECT_EQ(text_of(paths[1], a, b), "a0:1 10.1.0.1 (index 2, RoCE v1) to b0:1 10.1.0.2 (index 2, RoCE v1)");
  EXPECT_TRUE(b[0].gids[paths[2].remote_gid].is_link_local());
}

TEST(Paths, BetweenWhatDoesntFitThereAreNone) {
  const auto v1 = choose({roce("b0", "10.1.0.2")}, {.gid_index = 2}), v2 = choose({roce("a0", "10.1.0.1")}, {.gid_index = 3});
  EXPECT_THAT(possible_paths(v2, v1), IsEmpty());
  EXPECT_THAT(possible_paths(v2, choose({infiniband("b1", 4)})), IsEmpty());
  EXPECT_THAT(possible_paths(v2, choose({roce("b0", "2001:db8::2")}, {.gid_index = 3})), IsEmpty());
}

TEST(Paths, OfInfiniBandPreferTheSubnet) {
  const std::vector<Port> a = {infiniband("a0", 1, "fec0:0:0:1::")}, b = {infiniband("b0", 2, "fec0:0:0:2::"), infiniband("b1", 3, "fec0:0:0:1::")};
  EXPECT_THAT(first_paths(a, b, 2), ElementsAre("a0-b1", "a0-b0"));
}

// --- what libibverbs says ---

class FakeVerbs : public testing::Test {
 protected:
  FakeVerbs() : file_(testing::TempDir() + "muster_verbs_" + std::to_string(getpid())) { setenv("MUSTER_TEST_VERBS", file_.c_str(), 1); }
  ~FakeVerbs() override {
    unsetenv("MUSTER_TEST_VERBS");
    unlink(file_.c_str());
  }
  std::vector<Port> ports(const std::string& text) {
    std::ofstream(file_) << text;
    std::vector<Port> r;
    for (const auto& a : Adapter::open_all(Library::load(FAKE_VERBS), problems))
      for (Port& p : a->ports()) r.push_back(std::move(p));
    return r;
  }
  std::string problems;

 private:
  std::string file_;
};

TEST_F(FakeVerbs, PortsAndGidsAreAsTheLibraryTellsThem) {
  const auto all = ports("device mlx5_0 1 a088c20300091000\nport 4 2 128 2 16\ngid 0 fe80::1 1\ngid 1 fe80::1 2\ngid 3 127.0.0.1 2\n"
                         "device mlx5_1 1 a088c20300092000\nport 1 2 64 1 16\n");
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].name(), "mlx5_0:1");
  EXPECT_TRUE(all[0].active);
  EXPECT_FALSE(all[0].infiniband);
  EXPECT_EQ(all[0].gbit_per_s, 400);
  EXPECT_THAT(indices(all[0]), ElementsAre(0, 1, 3));
  EXPECT_EQ(all[0].gids[2].text(), "127.0.0.1 (index 3, RoCE v2)");
  EXPECT_EQ(all[0].gids[2].subnet_bits, 96 + 8);  // of the loopback interface
  EXPECT_FALSE(all[1].active);
  EXPECT_TRUE(all[1].infiniband);
}

TEST_F(FakeVerbs, DevicesThatCantBeOpenedAreNamed) {
  EXPECT_THAT(ports("device mlx5_0 1 a088c20300091000\nclosed 13\n"), IsEmpty());
  EXPECT_THAT(problems, AllOf(HasSubstr("mlx5_0 can't be opened: EACCES"), HasSubstr("--device=/dev/infiniband")));
}

TEST(VerbsLibrary, ThatIsMissingIsNamedWithItsPackage) {
  const auto o = outcome_of([] { Library::load("libmuster-no-such-verbs.so"); });
  EXPECT_EQ(o.code, Result::system_error);
  EXPECT_THAT(o.text, AllOf(HasSubstr("libmuster-no-such-verbs.so"), HasSubstr("ibverbs-providers")));
}

// --- what ranks tell each other ---

TEST(VerbsAddress, ComesBackAndNonsenseIsRefused) {
  const std::vector<KnownPort> ports = {{choose({roce("mlx5_0", "10.0.0.1")})[0], 17, 0}, {choose({infiniband("mlx5_1", 7)})[0], 18, 1}};
  const std::string text = write_address(ports);
  const auto back = read_address(text);
  ASSERT_EQ(back.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(back[i].port.name(), ports[i].port.name());
    EXPECT_EQ(back[i].port.gids, ports[i].port.gids);
    EXPECT_EQ(back[i].port.lid, ports[i].port.lid);
    EXPECT_EQ(back[i].port.infiniband, ports[i].port.infiniband);
    EXPECT_EQ(back[i].greeter, ports[i].greeter);
    EXPECT_EQ(back[i].adapter, ports[i].adapter);
  }
  EXPECT_EQ(outcome_of([&] { read_address(text.substr(1)); }).code, Result::internal_error);
  EXPECT_EQ(outcome_of([&] { read_address(std::string(text.size(), '\xff')); }).code, Result::internal_error);
}

// --- times ---

TEST(VerbsSettings, ALostPeerIsGivenUpWithinTheLinkTimeout) {
  using namespace std::chrono_literals;
  for (const char* seconds : {"1", "2", "3.5", "20", "600"})
    for (const char* retries : {"0", "3", "7"}) {
      const test::Variable link("MUSTER_LINK_TIMEOUT", seconds), again("NCCL_IB_RETRY_CNT", retries), timeout("NCCL_IB_TIMEOUT", std::nullopt);
      const Settings s = Settings::from(Options::inspect("/nonexistent"));
      const double all = std::chrono::duration<double>(s.heartbeat + s.until_silent() + s.anew).count();
      EXPECT_LE(all, std::stod(seconds)) << retries;
      EXPECT_GT(all, 0.99 * std::stod(seconds)) << retries;
      EXPECT_GE(s.anew * 2.3, s.until_silent()) << seconds << " " << retries;
      EXPECT_GT(s.heartbeat, 0ns);
    }
}

// What is set for packets counts, whatever comes of it.
TEST(VerbsSettings, TimesOfPacketsAreNcclsIfSet) {
  using namespace std::chrono_literals;
  const test::Variable link("MUSTER_LINK_TIMEOUT", "20");
  const test::Variable patient("NCCL_IB_TIMEOUT", "22");
  EXPECT_EQ(Settings::from(Options::inspect("/nonexistent")).timeout, 22);
  EXPECT_EQ(Settings::from(Options::inspect("/nonexistent")).anew, 5s);
  const test::Variable short_one("NCCL_IB_TIMEOUT", "12");
  EXPECT_GT(Settings::from(Options::inspect("/nonexistent")).anew, 18s);
  const test::Variable none("NCCL_IB_TIMEOUT", std::nullopt);
  EXPECT_EQ(Settings::from(Options::inspect("/nonexistent")).timeout, 18);
}

}  // namespace
}  // namespace muster::verbs
