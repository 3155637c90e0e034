// Networks by TCP over this machine's loopback interface: messages, programs, deaths, strangers, who connects to whom.
#include "transports/tcp/tcp_network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <random>
#include <thread>

#include "base/error.h"
#include "bootstrap/bootstrap.h"
#include "support/processes.h"
#include "support/network_cases.h"
#include "support/shuffled_network.h"
#include "support/wire_exchange.h"
#include "transports/make_network.h"
#include "transports/network_transport.h"

namespace muster {
namespace {

using test::kLargest;
using Environment = std::map<std::string, std::string>;

Options options_of(const Environment& environment) {
  for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
  Options options = Options::inspect("/dev/null");
  for (const auto& [name, value] : environment) unsetenv(name.c_str());
  return options;
}

NetworkSetup setup_of(int rank, int nranks, const Environment& environment = {}) {
  NetworkSetup s = test::network_setup(rank, nranks);
  s.interfaces = {"lo"};
  s.options = options_of(environment);
  return s;
}

// Networks of ranks that are threads of this process.
struct Ranks {
  std::vector<std::unique_ptr<TcpNetwork>> networks;
  explicit Ranks(int n, const Environment& environment = {}) {
    std::vector<std::string> addresses;
    for (int r = 0; r < n; ++r) {
      networks.push_back(std::make_unique<TcpNetwork>(setup_of(r, n, environment)));
      addresses.push_back(networks.back()->address());
    }
    for (auto& network : networks) network->meet(addresses);
  }
  ~Ranks() { test::end_together(&networks); }
  TcpNetwork& operator[](int r) { return *networks[static_cast<size_t>(r)]; }
};

void expect_good_exchange(Ranks& ranks, uint64_t messages, uint64_t communicator = 5) {
  bool good[2] = {};
  std::atomic<int> at_work{2};
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r) threads.emplace_back([&, r] { test::exchange(ranks[r], r, communicator, messages, &good[r], &at_work); });
  for (auto& t : threads) t.join();
  EXPECT_TRUE(good[0] && good[1]);
}

TEST(Tcp, AnySizesArriveInOrder) {
  Ranks ranks(2);
  expect_good_exchange(ranks, 4000);
  EXPECT_EQ(ranks[0].streams(), 1u);
  EXPECT_EQ(ranks[1].streams(), 1u);
}

// Whatever part of a message a socket takes or gives.
TEST(Tcp, TinyBuffersCutMessagesAnywhere) {
  Ranks ranks(2, {{"NCCL_SOCKET_SNDBUF", "1"}, {"NCCL_SOCKET_RCVBUF", "100000"}});
  expect_good_exchange(ranks, 600);
}

TEST(Tcp, SeveralStreamsShareMessages) {
  Ranks ranks(2, {{"NCCL_SOCKET_NTHREADS", "2"}, {"NCCL_NSOCKS_PERTHREAD", "3"}});
  expect_good_exchange(ranks, 1500);
  EXPECT_EQ(ranks[0].streams(), 6u);
  EXPECT_EQ(ranks[1].streams(), 6u);
}

// --- streams that break ---

// Both ends of connections between this process and itself, by their ports.
using Connections = std::map<std::pair<int, int>, std::vector<int>>;
Connections connections_here() {
  Connections found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename());
    tcp_info info{};
    socklen_t size = sizeof info;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0 || info.tcpi_state != TCP_ESTABLISHED) continue;
    found[std::minmax({tcp::Place::of_this(fd).port(), tcp::Place::of_peer(fd).port()})].push_back(fd);
  }
  std::erase_if(found, [](const auto& c) { return c.second.size() != 2; });
  return found;
}

// Breaks all streams but one while two ranks exchange messages; `and_back`: until all of them are there again, and more.
void expect_others_to_take_over(int streams, const Environment& environment, std::chrono::microseconds after, bool and_back,
                                const std::function<void(const std::vector<int>&)>& break_it) {
  Environment e = environment;
  e["NCCL_NSOCKS_PERTHREAD"] = std::to_string(streams);
  Ranks ranks(2, e);
  uint64_t exchanges = 0;
  while (ranks[0].streams() < static_cast<size_t>(streams)) expect_good_exchange(ranks, 100, ++exchanges);
  std::thread breaker([&] {
    Connections there = connections_here();
    EXPECT_EQ(there.size(), static_cast<size_t>(streams));
    for (int left = streams; left > 1; --left) {
      std::this_thread::sleep_for(after);
      break_it(there.begin()->second);
      there.erase(there.begin());
    }
  });
  const size_t all = static_cast<size_t>(streams);
  const auto until = [&](auto is_so) {
    while (!testing::Test::HasFailure() && !(is_so(ranks[0]) && is_so(ranks[1]))) expect_good_exchange(ranks, 3000, ++exchanges);
  };
  until([&](const auto& rank) { return rank.lost_streams() == all - 1; });
  breaker.join();
  if (!and_back) return;
  until([&](const auto& rank) { return rank.streams() == all; });
  until([&, more = exchanges + 5](const auto&) { return exchanges >= more; });
  EXPECT_EQ(connections_here().size(), all);
}

TEST(TcpStreams, OneThatBreaksLosesNothing) {
  std::mt19937 random(7);
  for (int run = 0; run < 4; ++run)
    expect_others_to_take_over(3, {}, std::chrono::microseconds(random() % 30'000), false, [&](const std::vector<int>& ends) {
      shutdown(ends[random() % 2], run % 3 == 0 ? SHUT_WR : SHUT_RDWR);
    });
}

// What it had sent has vanished, and nobody says so.
TEST(TcpStreams, OneThatIsSilentLosesNothing) {
  expect_others_to_take_over(3, {{"MUSTER_LINK_TIMEOUT", "3"}}, std::chrono::milliseconds(20), true, [](const std::vector<int>& ends) {
    sock_filter nothing[] = {BPF_STMT(BPF_RET | BPF_K, 0)};
    const sock_fprog program{1, nothing};
    for (const int fd : ends) EXPECT_EQ(setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program), 0);
  });
}

TEST(Tcp, TwoThreadsOfARankUseItAtOnce) {
  Ranks ranks(2);
  test::expect_two_threads_of_a_rank_can_use_it(ranks);
}

TEST(Tcp, ProgramsAreExact) {
  for (const int n : {2, 3}) {
    Ranks ranks(n);
    test::expect_programs_to_be_exact(ranks, n);
    if (HasFatalFailure()) return;
  }
}

// More peers than are looked at one by one. All begin at once, so that connections cross.
TEST(Tcp, ManyPeersAtOnce) {
  constexpr int n = 9;
  for (int round = 0; round < 5; ++round) {
    Ranks ranks(n);
    std::atomic<int> good{0}, at_work{n};
    std::vector<std::thread> threads;
    for (int r = 0; r < n; ++r)
      threads.emplace_back([&, r] {
        std::vector<test::Source> sources;
        std::vector<test::Sink> sinks;
        for (int i = 1; i < n; ++i) {
          const WireName name{1, (r + i) % n, 0, kLargest};
          sources.emplace_back(ranks[r].sender(name, nullptr), 60);
          sinks.emplace_back(ranks[r].receiver(name, nullptr), 60);
        }
        for (bool done = false; !done;) {
          bool moved = ranks[r].progress(1);
          done = true;
          for (auto& s : sources) moved |= s.advance(), done = done && s.done();
          for (auto& s : sinks) moved |= s.advance(), done = done && s.done();
          if (!moved) std::this_thread::yield();
        }
        for (--at_work; at_work > 0;)
          if (!ranks[r].tend()) std::this_thread::yield();
        good += std::all_of(sinks.begin(), sinks.end(), [](const auto& s) { return s.good; });
      });
    for (auto& t : threads) t.join();
    EXPECT_EQ(good, n);
    for (int r = 0; r < n; ++r) EXPECT_EQ(ranks[r].streams(), static_cast<size_t>(n - 1)) << r;
  }
}

// A sleeper's event descriptor says when there is something to do: also when a peer takes what it didn't before.
TEST(Tcp, SleepersAreWoken) {
  Ranks ranks(2);
  SlotReceiver& in = ranks[1].receiver({1, 0, 0, 1 << 20}, nullptr);
  SlotSender& out = ranks[0].sender({1, 1, 0, 1 << 20}, nullptr);
  const auto woken = [&](int r, int milliseconds) {
    pollfd p{ranks[r].event_fd(), POLLIN, 0};
    return ::poll(&p, 1, milliseconds) == 1;
  };
  const auto asleep = [&](int r, int milliseconds) {
    while (!ranks[r].arm()) ranks[r].progress(1);
    return !woken(r, milliseconds);
  };
  std::vector<std::byte> memory(1 << 20);
  const auto put = [&](size_t bytes) {
    if (bytes > 0) out.acquire(bytes), out.send_from(memory.data());
    out.commit(1, false);
  };
  put(0);
  while (!in.ready()) ranks[0].progress(1), ranks[1].progress(1);
  in.release();
  for (int i = 0; i < 1000; ++i) ranks[0].progress(1), ranks[1].progress(1);
  EXPECT_TRUE(asleep(1, 50));
  put(0);
  EXPECT_FALSE(asleep(1, 20'000));
  while (!in.ready()) ranks[1].progress(1);
  in.release();
  // More than the kernel holds.
  for (int i = 0; i < 7; ++i) put(memory.size());
  while (ranks[0].progress(1)) {
  }
  ASSERT_LT(out.sent(), out.committed());
  EXPECT_TRUE(asleep(0, 50));
  for (int i = 0; i < 1000; ++i) ranks[1].progress(1);
  EXPECT_TRUE(woken(0, 20'000));
  for (int i = 0; i < 7; ++i) {
    while (!in.ready()) ranks[0].progress(1), ranks[1].progress(1);
    in.peek(memory.size());
    in.release();
  }
}

void with_peer(const std::function<void(Network&)>& peer, const std::function<void(Network&, pid_t)>& here) {
  test::with_peer_process([](int rank) { return std::make_unique<TcpNetwork>(setup_of(rank, 2)); }, peer, here);
}

void expect_lost(const std::string& why, const std::function<void()>& act) {
  try {
    act();
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Result::remote_error);
    EXPECT_THAT(e.what(), testing::ContainsRegex("the tcp connection between rank 0 and rank 1 is lost: " + why));
  }
}

TEST(Tcp, ADeadPeerIsAnErrorThatNamesIt) {
  for (const size_t bytes : {size_t{8}, size_t{200'000}})
    with_peer(
        [&](Network& network) {  // takes three messages, and dies
          SlotReceiver& in = network.receiver({1, 0, 0, 256 << 10}, nullptr);
          for (int i = 0; i < 3; ++i) {
            while (!in.ready()) network.progress(1);
            in.peek(bytes);
            in.release();
          }
        },
        [&](Network& network, pid_t) {
          std::vector<std::byte> memory(bytes);
          SlotSender& out = network.sender({1, 1, 0, 256 << 10}, nullptr);
          expect_lost("(send to |recv from |it closed the connection .).*1@[0-9]+", [&] {
            for (;;) {
              network.progress(1);
              if (!out.ready()) continue;
              std::byte* at = out.acquire(bytes);
              bytes > kInlineBytes ? out.send_from(memory.data()) : static_cast<void>(at[0] = std::byte{1});
              out.commit(1, false);
            }
          });
          network.settle(1);
          EXPECT_EQ(out.sent(), out.committed());  // `memory` is ours again
        });
}

TEST(Tcp, ADeadPeerIsNoticedByWhoOnlyReceives) {
  with_peer(
      [](Network& network) {
        SlotSender& out = network.sender({1, 0, 0, kLargest}, nullptr);
        out.commit(1, false);
        while (out.sent() < 1) network.progress(1);
        for (int i = 0; i < 2000; ++i) network.progress(1), usleep(50);
      },
      [](Network& network, pid_t) {
        SlotReceiver& in = network.receiver({1, 1, 0, kLargest}, nullptr);
        while (!in.ready()) network.progress(1);
        in.release();
        expect_lost("it closed the connection .[0-9.:]*1@[0-9]+.: its process has ended", [&] {
          while (!in.ready()) network.progress(1);
        });
      });
}

// A stopped process takes nothing: what its peer sends from a failed call's memory is let go of within seconds.
TEST(Tcp, AStoppedPeerKeepsNobodysMemory) {
  with_peer(
      [](Network& network) {
        SlotReceiver& in = network.receiver({1, 0, 0, 1 << 20}, nullptr);
        for (;;) network.progress(1), in.ready();
      },
      [](Network& network, pid_t child) {
        SlotSender& out = network.sender({1, 1, 0, 1 << 20}, nullptr);
        out.commit(1, false);
        while (out.sent() < 1) network.progress(1);
        kill(child, SIGSTOP);
        std::vector<std::byte> memory(1 << 20);
        for (int i = 0; i < 7; ++i) {
          out.acquire(memory.size());
          out.send_from(memory.data());
          out.commit(1, false);
        }
        for (int i = 0; i < 100; ++i) network.progress(1);
        EXPECT_LT(out.sent(), out.committed());
        network.settle(1);
        EXPECT_EQ(out.sent(), out.committed());
        kill(child, SIGKILL);
      });
}

TEST(Tcp, NobodyThereIsAnErrorWithAddressAndRemedy) {
  TcpNetwork a(setup_of(0, 2));
  std::string gone;
  {
    TcpNetwork b(setup_of(1, 2));
    gone = b.address();
  }
  a.meet({a.address(), gone});
  a.sender({1, 1, 0, kLargest}, nullptr).commit(1, false);
  expect_lost("it can't be reached at 127.0.0.1@[0-9]+: connect: ECONNREFUSED .*NCCL_SOCKET_IFNAME", [&] {
    for (;;) a.progress(1);
  });
}

TEST(Tcp, StrangersAreTurnedAway) {
  NetworkSetup bad = setup_of(1, 2);
  bad.secret = [](int, int) { return 12345; };
  TcpNetwork a(setup_of(0, 2)), b(bad);
  a.meet({a.address(), b.address()});
  b.meet({a.address(), b.address()});
  SlotReceiver& in = a.receiver({1, 1, 0, kLargest}, nullptr);
  b.sender({1, 0, 0, kLargest}, nullptr).commit(1, false);
  int errors = 0;
  for (int i = 0; i < 20'000 && (a.strangers() == 0 || errors == 0); ++i) {
    for (TcpNetwork* network : {&a, &b}) try {
        network->progress(1);
      } catch (const Error&) {
        ++errors;
      }
  }
  EXPECT_FALSE(in.ready());
  EXPECT_GE(a.strangers() + b.strangers(), 1u);
  EXPECT_EQ(a.streams() + b.streams(), 0u);
}

// Whatever comes to the port, those of the job go on, and nothing of it counts.
TEST(Tcp, GarbageAtThePortDisturbsNobody) {
  Ranks ranks(2);
  const auto rails = tcp::read_rails(ranks[0].address());
  std::mt19937 random(1);
  std::vector<Fd> strangers;
  for (int i = 0; i < 400; ++i) {
    Fd fd(socket(rails[0][0].family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(connect(fd.get(), reinterpret_cast<const sockaddr*>(&rails[0][0].address), rails[0][0].length), 0);
    std::string garbage(random() % 300, 'x');
    for (char& c : garbage) c = static_cast<char>(random());
    [[maybe_unused]] const ssize_t n = send(fd.get(), garbage.data(), garbage.size(), MSG_NOSIGNAL);
    if (i % 2) strangers.push_back(std::move(fd));
    if (i % 50 == 0)
      for (int k = 0; k < 10; ++k) ranks[0].progress(1);
  }
  expect_good_exchange(ranks, 100);
  EXPECT_GT(ranks[0].strangers(), 0u);
}

TEST(TcpHandshake, ProvesBothRanksAndTheirRoles) {
  const tcp::PairKey key{1, 2}, turned{2, 1};
  const tcp::Challenge c = tcp::make_challenge(), other = tcp::make_challenge();
  const tcp::Hello h = tcp::make_hello(key, c, 7, 0, 1);
  EXPECT_TRUE(tcp::is_proved(key, c, h));
  EXPECT_FALSE(tcp::is_proved(turned, c, h));
  EXPECT_FALSE(tcp::is_proved(key, other, h));  // played back
  tcp::Hello changed = h;
  changed.from = 8;
  EXPECT_FALSE(tcp::is_proved(key, c, changed));
  const tcp::Answer a = tcp::make_answer(key, c, h, tcp::Verdict::welcome);
  EXPECT_TRUE(tcp::is_proved(key, c, h, a));
  tcp::Answer mirrored = a;
  mirrored.proof = h.proof;
  EXPECT_FALSE(tcp::is_proved(key, c, h, mirrored));
  mirrored = a;
  mirrored.verdict = tcp::Verdict::lost;
  EXPECT_FALSE(tcp::is_proved(key, c, h, mirrored));
}

TEST(TcpRails, AreReadAsTheyWereWritten) {
  const std::string text = "10.0.0.1@4711 fd00::1@80\n127.0.0.1@1";
  EXPECT_EQ(tcp::write_rails(tcp::read_rails(text)), text);
  EXPECT_EQ(tcp::write_rails(tcp::read_rails("nonsense 1.2.3.4@70000 1.2.3.4 @ \n\n1.2.3.4@5")), "1.2.3.4@5");
  EXPECT_TRUE(tcp::read_rails("").empty());
}

// By network, whatever their order; by order, where networks say nothing.
TEST(TcpRails, ArePairedByNetwork) {
  const auto pairs = [](const std::string& mine_text, const std::string& theirs_text) {
    std::vector<tcp::Rail> mine = tcp::read_rails(mine_text), theirs = tcp::read_rails(theirs_text);
    for (tcp::Rail& rail : mine)
      for (tcp::Place& p : rail) p.prefix = p.family() == AF_INET ? 23 : 60;
    std::string said;
    for (const tcp::RailPair& p : tcp::pair_rails(mine, theirs)) said += fmt::format("{}{}", p.mine - mine.data(), p.theirs - theirs.data()) + " ";
    return said;
  };
  EXPECT_EQ(pairs("10.0.0.1@0\n10.0.2.1@0", "10.0.0.2@1\n10.0.2.2@1"), "00 11 ");
  EXPECT_EQ(pairs("10.0.0.1@0\n10.0.2.1@0", "10.0.2.2@1\n10.0.1.255@1"), "10 01 ");
  EXPECT_EQ(pairs("10.0.2.1@0\n10.0.4.1@0", "10.0.0.2@1\n10.0.2.2@1"), "01 ");
  EXPECT_EQ(pairs("10.0.0.1@0\n10.0.0.3@0", "10.0.0.2@1\n10.0.0.4@1"), "00 11 ");
  EXPECT_EQ(pairs("10.0.0.1@0\n10.0.0.3@0\n10.0.0.5@0", "10.0.0.2@1"), "00 ");
  EXPECT_EQ(pairs("10.0.0.1@0\n10.0.2.1@0", "10.8.0.2@1\n10.8.2.2@1\n10.8.4.2@1"), "00 11 ");
  EXPECT_EQ(pairs("fd00:0:0:10::1@0\n10.0.2.1@0 fd00:0:0:20::1@0", "fd00:0:0:2f::9@1"), "10 ");
  EXPECT_EQ(pairs("10.0.0.1@0", ""), "");
}

TEST(TcpRails, FollowFamilyAndPortRange) {
  const auto address = [](const Environment& e) { return TcpNetwork(setup_of(0, 1, e)).address(); };
  EXPECT_THAT(address({{"NCCL_SOCKET_FAMILY", "AF_INET"}}), testing::MatchesRegex("127\\.[0-9.]+@[0-9]+"));
  EXPECT_THAT(address({{"MUSTER_PORT_RANGE", "42170-42189"}, {"NCCL_SOCKET_FAMILY", "AF_INET"}}), testing::MatchesRegex("127\\.[0-9.]+@421[78][0-9]"));
  NetworkSetup s = setup_of(0, 1);
  s.interfaces = {"none0"};
  EXPECT_THROW(TcpNetwork{s}, Error);
}

TEST(TcpSettings, RefuseWhatIsImpossible) {
  EXPECT_THROW(TcpNetwork{setup_of(0, 1, {{"NCCL_SOCKET_NTHREADS", "17"}})}, Error);
  EXPECT_THROW(TcpNetwork{setup_of(0, 1, {{"NCCL_SOCKET_NTHREADS", "16"}, {"NCCL_NSOCKS_PERTHREAD", "5"}})}, Error);
}

// What a stream uses; nothing is asked to be what the system uses.
std::string congestion_with(const Environment& e) {
  const Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  tcp::tune(fd.get(), tcp::Settings::from(options_of(e)));
  char name[32] = {};
  socklen_t size = sizeof name - 1;
  EXPECT_EQ(getsockopt(fd.get(), IPPROTO_TCP, TCP_CONGESTION, name, &size), 0);
  return name;
}

TEST(TcpSettings, ChooseTheCongestionControl) {
  EXPECT_EQ(congestion_with({{"MUSTER_TCP_CONGESTION", "reno"}}), "reno");
  const std::string systems = congestion_with({{"MUSTER_TCP_CONGESTION", "system"}});
  if (systems == "bbr")
    EXPECT_THAT(congestion_with({}), testing::AnyOf("cubic", "reno"));
  else
    EXPECT_EQ(congestion_with({}), systems);
  try {
    congestion_with({{"MUSTER_TCP_CONGESTION", "none-such"}});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Result::invalid_usage);
    EXPECT_THAT(e.what(), testing::AllOf(testing::HasSubstr("MUSTER_TCP_CONGESTION=none-such: ENOENT"), testing::HasSubstr(" reno")));
  }
}

TEST(Tcp, IsOfferedWhereNcclsOptionsAllowIt) {
  const auto offered = [](const char* net) { return offered_networks(options_of({{"NCCL_NET", net}})); };
  EXPECT_THAT(offered(""), testing::Contains("tcp"));
  EXPECT_THAT(offered("Socket"), testing::ElementsAre("tcp"));
  EXPECT_THAT(offered("tcp"), testing::ElementsAre("tcp"));
  EXPECT_THAT(offered("UCX"), testing::Not(testing::Contains("tcp")));
  EXPECT_THAT(offered("verbs"), testing::Not(testing::Contains("tcp")));
}

}  // namespace
}  // namespace muster
