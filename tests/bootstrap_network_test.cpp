// Interfaces, ports and hosts as they are met in the field, made of network namespaces. Skipped where those
// aren't permitted.
#include <gmock/gmock.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include <atomic>
#include <fstream>
#include <sstream>
#include <thread>

#include "bootstrap/handshake.h"
#include "bootstrap/socket.h"
#include "bootstrap/unique_id.h"
#include "bootstrap_support.h"

namespace muster {
namespace {

using namespace test;  // NOLINT
using testing::AllOf;
using testing::HasSubstr;

void ip(const std::string& command) {
  if (shell("ip " + command)) return;
  fprintf(stderr, "ip %s failed\n", command.c_str());
  _exit(9);  // nothing that follows would make sense
}
void add_veth(const std::string& name, const std::string& address) {
  ip("link add " + name + " type veth peer name p" + name);
  ip("link set " + name + " up");
  ip("link set p" + name + " up");
  if (!address.empty()) ip("addr add " + address + " dev " + name);
}
std::string root_host(const std::string& ifname = "") {
  const ScopedEnv env("NCCL_SOCKET_IFNAME", ifname);
  return decode(make_unique_id()).root.host_text();
}
void meet(int n) {
  for (const auto& r : connect_all(n)) r->close();
}

TEST(Network, WithoutAnyIpInterface) {
  IN_NEW_NETWORK();
  EXPECT_EQ(decode(make_unique_id()).root.kind, Address::Kind::local);
  meet(4);
}

TEST(Network, LoopbackWhenThereIsNothingElse) {
  IN_NEW_NETWORK();
  ip("link set lo up");
  EXPECT_EQ(root_host(), "127.0.0.1");
  meet(2);
}

TEST(Network, Ipv6Only) {
  IN_NEW_NETWORK();
  ip("link set lo up");
  add_veth("e0", "");
  ip("-6 addr add fd00:7::1/64 dev e0 nodad");
  EXPECT_EQ(root_host(), "fd00:7::1");
  meet(3);
}

TEST(Network, NamesAsPeopleSetThem) {
  IN_NEW_NETWORK();
  ip("link set lo up");
  add_veth("v10", "10.7.10.1/24");
  add_veth("v1", "10.7.1.1/24");
  add_veth("x0", "10.7.2.1/24");
  const std::string prefix = root_host("v1");
  EXPECT_TRUE(prefix == "10.7.1.1" || prefix == "10.7.10.1") << prefix;
  EXPECT_EQ(root_host("=v1"), "10.7.1.1");
  EXPECT_EQ(root_host("=v10"), "10.7.10.1");
  EXPECT_EQ(root_host("^v1"), "10.7.2.1");
  EXPECT_EQ(root_host(" x0 "), "10.7.2.1");
  EXPECT_EQ(root_host("lo"), "127.0.0.1");
  for (const char* wrong : {"nope0", "127.0.0.1"}) {
    const auto f = failure_of([&] { root_host(wrong); });
    EXPECT_EQ(f.code, Result::invalid_usage);
    EXPECT_THAT(f.text, AllOf(HasSubstr(wrong), HasSubstr("v10 ("), HasSubstr("10.7.1.1")));
  }
}

TEST(Network, ManyInterfacesOfWhichOneServes) {
  IN_NEW_NETWORK();
  ip("link set lo up");
  for (int i = 0; i < 15; ++i) {
    const std::string name = "b" + std::to_string(i);
    ip("link add " + name + " type bridge");
    if (i % 2)
      ip("link set " + name + " up");  // without an address
    else
      ip("addr add 10.8." + std::to_string(i) + ".1/24 dev " + name);  // but down
  }
  ip("link add docker0 type veth peer name pdocker0");
  ip("link set docker0 up");
  ip("link set pdocker0 up");
  ip("addr add 172.17.0.1/16 dev docker0");
  add_veth("zz0", "10.9.0.1/24");
  EXPECT_EQ(root_host(), "10.9.0.1");
  meet(3);
}

// Ports that TCP sockets of this namespace listen at.
std::vector<int> listening_ports() {
  std::vector<int> r;
  for (const char* file : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
    std::ifstream in(file);
    std::string line;
    std::getline(in, line);
    while (std::getline(in, line)) {
      std::istringstream fields(line);
      std::string index, local, remote, state;
      fields >> index >> local >> remote >> state;
      if (state == "0A") r.push_back(std::stoi(local.substr(local.rfind(':') + 1), nullptr, 16));
    }
  }
  return r;
}

TEST(Network, PortRangeHolds) {
  IN_NEW_NETWORK();
  ip("link set lo up");
  setenv("MUSTER_PORT_RANGE", "41000-41002", 1);
  SocketError error;
  Address taken;
  taken.kind = Address::Kind::ipv4;
  taken.bytes = {127, 0, 0, 1};
  taken.port = 41000;
  const ProcessFd other = listen_at(taken, error);
  ASSERT_TRUE(other);
  meet(4);
  for (const int p : listening_ports()) EXPECT_TRUE(p >= 41000 && p <= 41002) << p;
  setenv("MUSTER_PORT_RANGE", "41000-41000", 1);
  const auto f = failure_of([] { make_unique_id(); });
  EXPECT_EQ(f.code, Result::system_error);
  EXPECT_THAT(f.text, AllOf(HasSubstr("MUSTER_PORT_RANGE=41000-41000"), HasSubstr("EADDRINUSE"),
                            HasSubstr("127.0.0.1")));
}

TEST(Network, FewEphemeralPorts) {
  IN_NEW_NETWORK();
  ip("link set lo up");
  std::ofstream("/proc/sys/net/ipv4/ip_local_port_range") << "40000 40003\n";
  const UniqueId id = make_unique_id();
  const Options options = Options::from_environment();
  int failed = 0, named = 0;
  for (const Failure& f :
       in_threads(8, [&](int r) { Bootstrap::connect(id, 8, r, options, in_seconds(3))->close(); })) {
    failed += !f.text.empty();
    named += f.text.find("ip_local_port_range") != std::string::npos;
    if (!f.text.empty()) {
      EXPECT_EQ(f.code, Result::timeout);
    }
  }
  EXPECT_TRUE(failed == 0 || (failed == 8 && named > 0)) << failed << " " << named;
}

// The port is free again when the other side no longer welcomes anybody: what took the time is said all the same.
TEST(Network, AnEphemeralPortComesFreeTooLate) {
  IN_NEW_NETWORK();
  ip("link set lo up");
  std::ofstream("/proc/sys/net/ipv4/ip_local_port_range") << "40000 40000\n";
  Address at;
  at.kind = Address::Kind::ipv4;
  at.bytes = {127, 0, 0, 1};
  at.port = 41000;
  SocketError error;
  const ProcessFd listening = listen_at(at, error);
  ASSERT_TRUE(listening);
  const auto reset = [](ProcessFd fd) {  // no port stays behind
    const linger now{1, 0};
    setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
  };
  std::atomic<bool> over = false;
  ProcessFd holder = connect_to(at, {}, in_seconds(1), error);
  ASSERT_TRUE(holder);
  std::thread turns_all_away([&] {
    const Deadline held = in_seconds(0.3);
    while (!held.expired()) std::this_thread::sleep_for(held.nap());
    reset(std::move(holder));
    while (!over)
      if (wait_for(listening.get(), POLLIN, in_seconds(0.05))) reset(ProcessFd(accept(listening.get(), nullptr, nullptr)));
  });
  const auto f = failure_of([&] { dial(at, {}, {}, in_seconds(1.5), {"the root", "Look there"}); });
  over = true;
  turns_all_away.join();
  EXPECT_EQ(f.code, Result::timeout);
  EXPECT_THAT(f.text, AllOf(HasSubstr("127.0.0.1:41000"), HasSubstr("ip_local_port_range"), HasSubstr("Look there")));
}

// Two hosts, as two namespaces, joined by two links in one subnet.
struct Board {
  std::atomic<int> step{0}, connected{0};
  UniqueId id{};
  char text[512] = {};
};
void wait_step(Board* b, int step) {
  ASSERT_TRUE(eventually([&] { return b->step >= step; }));
}

void in_two_hosts(const std::function<void(Board*)>& here, const std::function<void(Board*)>& there) {
  void* memory = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  Board* b = new (memory) Board;
  const pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (unshare(CLONE_NEWNET) != 0) _exit(3);
    b->step = 1;
    wait_step(b, 2);
    for (const char* c : {"link set lo up", "link set peer1 up", "link set peer2 up",
                          "addr add 192.168.0.11/20 dev peer1", "addr add 192.168.0.12/20 dev peer2"})
      ip(c);
    b->step = 3;
    there(b);
    fflush(nullptr);
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  wait_step(b, 1);
  ip("link set lo up");
  for (const std::string n : {"1", "2"}) {
    ip("link add net" + n + " type veth peer name peer" + n);
    ip("link set peer" + n + " netns " + std::to_string(pid));
    ip("link set net" + n + " up");
    ip("addr add 192.168.0." + n + "/20 dev net" + n);
  }
  b->step = 2;
  wait_step(b, 3);
  EXPECT_TRUE(eventually([] {  // carrier on both
    int ready = 0;
    for (const Interface& i : list_interfaces())
      ready += i.name.starts_with("net") && (i.flags & IFF_RUNNING);
    return ready == 2;
  }));
  here(b);
  int status = -1;
  waitpid(pid, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(Network, ChosenAddressIsUsedThoughAnotherIsInTheSameSubnet) {
  IN_NEW_NETWORK();
  in_two_hosts(
      [](Board* b) {
        setenv("NCCL_SOCKET_IFNAME", "=net2", 1);
        b->id = make_unique_id();
        EXPECT_EQ(decode(b->id).root.host_text(), "192.168.0.2");
        b->step = 4;
        const auto boot = Bootstrap::connect(b->id, 2, 0, Options::from_environment(), in_seconds(30));
        boot->barrier(in_seconds(30));
        boot->close();

        wait_step(b, 5);
        const auto source = choose_sources(list_interfaces(), "=net2", "")[0];
        Address target;
        target.kind = Address::Kind::ipv4;
        target.bytes = {192, 168, 0, 12};
        target.port = 7000;
        SocketError error;
        const ProcessFd fd = connect_to(target, source, in_seconds(10), error);
        ASSERT_TRUE(fd) << describe_errno(error.error);
        EXPECT_EQ(local_address(fd.get()).host_text(), "192.168.0.2");
        b->step = 6;
      },
      [](Board* b) {
        setenv("NCCL_SOCKET_IFNAME", "peer2", 1);
        wait_step(b, 4);
        const auto boot = Bootstrap::connect(b->id, 2, 1, Options::from_environment(), in_seconds(30));
        boot->barrier(in_seconds(30));
        boot->close();
        SocketError error;
        Address at;
        at.kind = Address::Kind::ipv4;
        at.port = 7000;
        const ProcessFd listener = listen_at(at, error);
        ASSERT_TRUE(listener);
        b->step = 5;
        wait_step(b, 6);
      });
}

TEST(Network, LoopbackOnlyRootIsExplainedToOtherHosts) {
  IN_NEW_NETWORK();
  in_two_hosts(
      [](Board* b) {
        setenv("NCCL_SOCKET_IFNAME", "lo", 1);
        b->id = make_unique_id();
        b->step = 4;
        wait_step(b, 5);
      },
      [](Board* b) {
        wait_step(b, 4);
        const auto f = failure_of(
            [&] { Bootstrap::connect(b->id, 2, 1, Options::from_environment(), in_seconds(600)); });
        EXPECT_EQ(f.code, Result::invalid_usage);
        EXPECT_THAT(f.text, AllOf(HasSubstr("127.0.0.1"), HasSubstr("another network namespace"),
                                  HasSubstr("NCCL_SOCKET_IFNAME")));
        b->step = 5;
      });
}

TEST(Network, LoopbackOnlyRankIsExplainedToAll) {
  IN_NEW_NETWORK();
  in_two_hosts(
      [](Board* b) {
        b->id = make_unique_id();
        b->step = 4;
        setenv("NCCL_SOCKET_IFNAME", "lo", 1);
        const auto f = failure_of(
            [&] { Bootstrap::connect(b->id, 2, 0, Options::from_environment(), in_seconds(600)); });
        EXPECT_THAT(f.text, AllOf(HasSubstr("rank 0 (host"), HasSubstr("loopback")));
      },
      [](Board* b) {
        wait_step(b, 4);
        const auto f = failure_of(
            [&] { Bootstrap::connect(b->id, 2, 1, Options::from_environment(), in_seconds(600)); });
        EXPECT_EQ(f.code, Result::invalid_usage);
        EXPECT_THAT(f.text, AllOf(HasSubstr("rank 0 (host"), HasSubstr("loopback"), HasSubstr("rank 1")));
      });
}

TEST(Network, DescriptorsCantCrossHosts) {
  IN_NEW_NETWORK();
  const auto rank = [](int r) {
    return [r](Board* b) {
      if (r == 0) {
        b->id = make_unique_id();
        b->step = 4;
      }
      wait_step(b, 4);
      const auto boot = Bootstrap::connect(b->id, 2, r, Options::from_environment(), in_seconds(30));
      const auto f = failure_of([&] {
        boot->exchange_fds(
            {0, 1}, {0}, [](int, std::vector<Fd>) {}, in_seconds(60));
      });
      EXPECT_EQ(f.code, Result::system_error);
      EXPECT_THAT(f.text, AllOf(HasSubstr("rank 1 (host"), HasSubstr("UNIX socket")));
      boot->barrier(in_seconds(30));
      boot->close();
    };
  };
  in_two_hosts(rank(0), rank(1));
}

}  // namespace
}  // namespace muster
