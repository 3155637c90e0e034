// `muster doctor` across a job: on emulated hosts, and on hosts that are network namespaces.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/hosts.h"
#include "support/shell.h"

namespace muster {
namespace {

using test::Hosts;
using test::Output;
using test::output_of;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// Rank r on host host_of[r]; what all of them print, and rank 0's exit status. `more`: of rank r's environment.
Output doctor(const Hosts& hosts, const std::vector<int>& host_of, const std::string& flags = "",
              const std::vector<std::string>& more = {}) {
  std::string script;
  for (size_t r = host_of.size(); r-- > 0;)
    script += hosts.inside(host_of[r]) + "env -i HOME=/nonexistent RANK=" + std::to_string(r) +
              " WORLD_SIZE=" + std::to_string(host_of.size()) + " LOCAL_RANK=0 MASTER_ADDR=" + hosts.address(host_of[0]) +
              " MASTER_PORT=29400 " + (r < more.size() ? more[r] : "") + " " MUSTER_TOOL " doctor " + flags + (r > 0 ? " &\n" : "\n");
  return output_of("{ " + script + "status=$?; wait; exit $status; } 2>&1");
}

TEST(DoctorJob, EmulatedHostsReachEachOther) {
  const Output o = output_of("env -i HOME=/nonexistent PATH=$PATH " MUSTER_TOOL
                             " run -n 4 sh -c 'NCCL_HOSTID=h$((RANK/2)) exec " MUSTER_TOOL " doctor' 2>&1");
  EXPECT_LE(o.status, 1) << o.text;  // what this machine is like isn't the point
  EXPECT_THAT(o.text, AllOf(HasSubstr("4 of 4 ranks (muster run), 2 hosts.\n"), HasSubstr("h0, 2 ranks\n"), HasSubstr("h1, 2 ranks\n"),
                            HasSubstr("Pairs of hosts, both directions, TCP: 2 of 2 reached"), HasSubstr("\n0 errors")));
}

TEST(DoctorJob, ARankThatDoesntComeIsNamed) {
  const std::string environment = "env -i HOME=/nonexistent WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 MASTER_PORT=";
  const Output zero = output_of(environment + "29561 RANK=0 " MUSTER_TOOL " doctor --timeout 1 2>&1");
  EXPECT_EQ(zero.status, 2) << zero.text;
  EXPECT_THAT(zero.text, AllOf(HasSubstr("error    rank-missing"), HasSubstr("2 of 3 ranks didn't reach rank 0"), HasSubstr("ranks 1, 2")));
  const Output one = output_of(environment + "29571 RANK=1 " MUSTER_TOOL " doctor --timeout 1 2>&1");
  EXPECT_EQ(one.status, 2) << one.text;
  EXPECT_THAT(one.text, AllOf(HasSubstr("error    no-meeting"), HasSubstr("rank 1"), HasSubstr("MASTER_ADDR=127.0.0.1 MASTER_PORT=29571")));
}

TEST(DoctorJob, RealHostsReachEachOther) {
  NEED_HOSTS();
  const Hosts hosts({.hosts = 3, .strays = true});
  const Output o = doctor(hosts, {0, 1, 2, 1});
  EXPECT_LE(o.status, 1) << o.text;
  EXPECT_THAT(o.text, AllOf(HasSubstr("4 of 4 ranks"), HasSubstr("3 hosts.\n"), HasSubstr("6 of 6 reached"), HasSubstr("host1, 2 ranks\n")));
  EXPECT_THAT(o.text, HasSubstr("meets over rail0 (10.77.0.1, MTU 1500"));
  const Output tcp = doctor(hosts, {0, 1}, "", {"NCCL_NET=tcp", "NCCL_NET=tcp"}), none = doctor(hosts, {0, 1}, "", {"NCCL_NET=tcp", "NCCL_NET=pigeons"});
  EXPECT_THAT(tcp.text, HasSubstr("Ranks of different hosts are joined by tcp. NCCL_NET=tcp asks for it.\n"));
  EXPECT_EQ(none.status, 2);
  EXPECT_THAT(none.text, HasSubstr("error    no-common-network"));
}

TEST(DoctorJob, APairThatIsCutOffIsNamedAndTheRestIsSeen) {
  NEED_HOSTS();
  const Hosts hosts({.hosts = 3});
  for (const auto& [host, other] : {std::pair(1, 2), std::pair(2, 1)})
    ASSERT_EQ(output_of(hosts.inside(host) + "ip route add unreachable " + hosts.address(other) + "/32 2>&1").status, 0);
  const Output o = doctor(hosts, {0, 1, 2});
  EXPECT_EQ(o.status, 2) << o.text;
  EXPECT_THAT(o.text, AllOf(HasSubstr("4 of 6 reached"), HasSubstr("host2 (rank 2, 10.77.0.3 on rail0) can't be reached from host1: rank 2 (host2)"),
                            HasSubstr("host1 (rank 1, 10.77.0.2 on rail0) can't be reached from host2: rank 1 (host1)"),
                            HasSubstr("EHOSTUNREACH"), HasSubstr("2 errors")));
}

TEST(DoctorJob, DifferentMtusAndALinkThatDropsLongPackets) {
  NEED_HOSTS();
  const Hosts hosts({.hosts = 2});
  ASSERT_EQ(output_of(hosts.inside(1) + "ip link set rail0 mtu 1400 2>&1").status, 0);
  const Output mtu = doctor(hosts, {0, 1});
  EXPECT_EQ(mtu.status, 1) << mtu.text;
  EXPECT_THAT(mtu.text, AllOf(HasSubstr("mtu-differs"), HasSubstr("1400 on host1 (rail0); 1500 on host0 (rail0)"), HasSubstr("2 of 2 reached")));

  // A bucket that holds less than a long packet never has enough for one.
  const Output drop = output_of(hosts.inside(1) + "tc qdisc add dev rail0 root tbf rate 100mbit burst 1000 latency 50ms 2>&1");
  if (drop.status != 0) GTEST_SKIP() << "this kernel can't drop long packets: " << drop.text;
  const Output lost = doctor(hosts, {0, 1}, "--timeout 2");
  EXPECT_EQ(lost.status, 2) << lost.text;
  EXPECT_THAT(lost.text, AllOf(HasSubstr("error    long-messages-lost"), HasSubstr("rank 1 connected to rank 0, but what they say"),
                               HasSubstr("the same MTU"), Not(HasSubstr("rank-missing"))));
}

TEST(DoctorJob, WrongInterfacesOnOneHost) {
  NEED_HOSTS();
  const Hosts hosts({.hosts = 2});
  const Output loopback = doctor(hosts, {0, 1}, "", {"", "NCCL_SOCKET_IFNAME=lo"});
  EXPECT_EQ(loopback.status, 2);
  EXPECT_THAT(loopback.text, HasSubstr("error    "));
  const Output unknown = doctor(hosts, {0, 1}, "--timeout 3", {"", "NCCL_SOCKET_IFNAME=nope0"});
  EXPECT_EQ(unknown.status, 2);
  EXPECT_THAT(unknown.text, AllOf(HasSubstr("1 of 2 ranks didn't reach rank 0 at 10.77.0.1 (rail0) in time: rank 1"),
                                  HasSubstr("no-interface"), HasSubstr("'nope0' is the beginning of the name of no interface")));
}

}  // namespace
}  // namespace muster
