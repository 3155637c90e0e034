// Networks by UCX over this machine's interfaces: messages, programs, deaths, strangers.
#include "transports/ucx/ucx_network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <thread>

#include "base/error.h"
#include "bootstrap/bootstrap.h"
#include "support/processes.h"
#include "support/network_cases.h"
#include "support/shuffled_network.h"
#include "support/wire_exchange.h"
#include "transports/make_network.h"
#include "transports/network_transport.h"
#include "transports/ucx/ucp_library.h"
#include "transports/ucx/ucx_settings.h"

namespace muster {
namespace {

using test::kLargest;

#ifdef __SANITIZE_THREAD__
// UCX would replace functions that the sanitizer has replaced.
[[maybe_unused]] const int g_no_hooks = setenv("UCX_MEM_EVENTS", "n", 0);
#endif

// Networks of ranks that are threads of this process; UCX doesn't know that they are.
struct Ranks {
  std::vector<std::unique_ptr<Network>> networks;
  explicit Ranks(int n) {
    std::vector<std::string> addresses;
    for (int r = 0; r < n; ++r) {
      NetworkSetup s = test::network_setup(r, n);
      s.interfaces = {"lo"};
      networks.push_back(make_ucx_network(s));
      addresses.push_back(networks.back()->address());
    }
    for (auto& network : networks) network->meet(addresses);
  }
  ~Ranks() { test::end_together(&networks); }
  Network& operator[](int r) { return *networks[static_cast<size_t>(r)]; }
};

class Ucx : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = UcpLibrary::problem(); !why.empty()) GTEST_SKIP() << why;
  }
};

TEST_F(Ucx, AnySizesArriveInOrder) {
  Ranks ranks(2);
  bool good[2] = {};
  std::atomic<int> at_work{2};
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r) threads.emplace_back([&, r] { test::exchange(ranks[r], r, 5, 2000, &good[r], &at_work); });
  for (auto& t : threads) t.join();
  EXPECT_TRUE(good[0] && good[1]);
}

TEST_F(Ucx, TwoThreadsOfARankUseItAtOnce) {
  Ranks ranks(2);
  test::expect_two_threads_of_a_rank_can_use_it(ranks);
}

TEST_F(Ucx, ProgramsAreExact) {
  for (const int n : {2, 3}) {
    Ranks ranks(n);
    test::expect_programs_to_be_exact(ranks, n);
    if (HasFatalFailure()) return;
  }
}

// A sleeper's event descriptor says when there is something to do.
TEST_F(Ucx, SleepersAreWoken) {
  Ranks ranks(2);
  SlotReceiver& in = ranks[1].receiver({1, 0, 0, kLargest}, nullptr);
  const auto settle = [&](int r) {
    for (int calm = 0; calm < 100; ++calm)
      if (ranks[r].progress(1)) calm = 0;
  };
  ranks[0].sender({1, 1, 0, kLargest}, nullptr).commit(1, false);
  while (!in.ready()) ranks[0].progress(1), ranks[1].progress(1);
  in.release();
  settle(1);
  while (!ranks[1].arm()) ranks[1].progress(1);
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    ranks[0].sender({1, 1, 0, kLargest}, nullptr).commit(2, false);
    settle(0);
  });
  fd_set set;
  FD_ZERO(&set);
  FD_SET(ranks[1].event_fd(), &set);
  timeval limit{20, 0};
  EXPECT_EQ(select(ranks[1].event_fd() + 1, &set, nullptr, nullptr, &limit), 1);
  later.join();
  for (int i = 0; i < 1000 && !in.ready(); ++i) ranks[1].progress(1);
  EXPECT_TRUE(in.ready());
}

void with_peer(const std::function<void(Network&)>& peer, const std::function<void(Network&, pid_t)>& here) {
  test::with_peer_process([](int rank) {
        NetworkSetup s = test::network_setup(rank, 2);
        s.interfaces = {"lo"};
        return make_ucx_network(s);
      }, peer, here);
}

void expect_lost(const std::function<void()>& act) {
  try {
    act();
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Result::remote_error);
    EXPECT_THAT(e.what(), testing::HasSubstr("the ucx connection between rank 0 and rank 1 is lost: ucx says '"));
  }
}

TEST_F(Ucx, ADeadPeerIsAnErrorThatNamesIt) {
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
          expect_lost([&] {
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

TEST_F(Ucx, ADeadPeerIsNoticedByWhoOnlyReceives) {
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
        expect_lost([&] {
          while (!in.ready()) network.progress(1);
        });
      });
}

// A stopped process takes nothing: what its peer sends from a failed call's memory is let go of within seconds.
TEST_F(Ucx, AStoppedPeerKeepsNobodysMemory) {
  with_peer(
      [](Network& network) {
        SlotReceiver& in = network.receiver({1, 0, 0, 256 << 10}, nullptr);
        for (;;) network.progress(1), in.ready();
      },
      [](Network& network, pid_t child) {
        SlotSender& out = network.sender({1, 1, 0, 256 << 10}, nullptr);
        out.commit(1, false);
        while (out.sent() < 1) network.progress(1);
        kill(child, SIGSTOP);
        std::vector<std::byte> memory(256 << 10);
        for (int i = 0; i < 4; ++i) {
          out.acquire(memory.size());
          out.send_from(memory.data());
          out.commit(1, false);
        }
        for (int i = 0; i < 100; ++i) network.progress(1);
        network.settle(1);
        EXPECT_EQ(out.sent(), out.committed());
        kill(child, SIGKILL);
      });
}

TEST_F(Ucx, StrangersAreNotHeard) {
  NetworkSetup good = test::network_setup(0, 2), bad = test::network_setup(1, 2);
  good.interfaces = bad.interfaces = {"lo"};
  bad.secret = [](int, int) { return 12345; };
  const auto a = make_ucx_network(good), b = make_ucx_network(bad);
  a->meet({a->address(), b->address()});
  b->meet({a->address(), b->address()});
  SlotReceiver& in = a->receiver({1, 1, 0, kLargest}, nullptr);
  SlotSender& out = b->sender({1, 0, 0, kLargest}, nullptr);
  out.commit(1, false);
  for (int i = 0; i < 20'000 && dynamic_cast<WiredNetwork&>(*a).strangers() == 0; ++i) a->progress(1), b->progress(1);
  EXPECT_FALSE(in.ready());
  EXPECT_EQ(dynamic_cast<WiredNetwork&>(*a).strangers(), 1u);
}

std::string settings_of(const std::map<std::string, std::string>& environment, const std::vector<std::string>& interfaces,
                        const std::vector<std::string>& rdma, const std::set<std::string>& users = {}) {
  for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
  std::string text;
  for (const UcxSetting& s : ucx_settings(Options::inspect("/dev/null"), interfaces, rdma, [&](const char* n) { return users.contains(n); }))
    text += (text.empty() ? "" : " ") + s.name + "=" + s.value;
  for (const auto& [name, value] : environment) unsetenv(name.c_str());
  return text;
}

const std::string kTwoTcp = "TLS=tcp RNDV_THRESH=inf", kTcp = kTwoTcp + " TCP_RX_SEG_SIZE=266240";

TEST(UcxSettings, FollowNcclsOptionsUnlessUcxsAreSet) {
  EXPECT_EQ(settings_of({}, {}, {}), kTcp);
  EXPECT_EQ(settings_of({}, {"eth0", "eth1"}, {}), kTwoTcp + " MAX_EAGER_LANES=2 NET_DEVICES=eth0,eth1");
  EXPECT_EQ(settings_of({}, {"eth0"}, {"mlx5_0", "mlx5_1"}), "TLS=ib,tcp NET_DEVICES=mlx5_0:1,mlx5_1:1,eth0");
  EXPECT_EQ(settings_of({{"NCCL_IB_DISABLE", "1"}}, {"eth0"}, {"mlx5_0"}), kTcp + " NET_DEVICES=eth0");
  EXPECT_EQ(settings_of({{"NCCL_NET", "Socket"}}, {"eth0"}, {"mlx5_0"}), kTcp + " NET_DEVICES=eth0");
  EXPECT_EQ(settings_of({{"NCCL_IB_HCA", "mlx5_1:2"}}, {"eth0"}, {"mlx5_0", "mlx5_1", "mlx5_10"}), "TLS=ib,tcp NET_DEVICES=mlx5_1:2,mlx5_10:2,eth0");
  EXPECT_EQ(settings_of({{"NCCL_IB_HCA", "=mlx5_1:2"}}, {"eth0"}, {"mlx5_0", "mlx5_1", "mlx5_10"}), "TLS=ib,tcp NET_DEVICES=mlx5_1:2,eth0");
  EXPECT_EQ(settings_of({{"NCCL_IB_HCA", "^mlx5_1"}}, {}, {"mlx5_0", "mlx5_1"}), "TLS=ib,tcp NET_DEVICES=mlx5_0:1");
  EXPECT_EQ(settings_of({{"NCCL_IB_GID_INDEX", "3"}, {"NCCL_IB_TC", "106"}, {"NCCL_IB_SL", "1"}, {"NCCL_IB_TIMEOUT", "20"}, {"NCCL_IB_RETRY_CNT", "7"}}, {}, {"mlx5_0"}),
            "TLS=ib,tcp IB_GID_INDEX=3 IB_TRAFFIC_CLASS=106 IB_SL=1 RC_RETRY_COUNT=7 RC_TIMEOUT=4294967us");
  EXPECT_EQ(settings_of({}, {"eth0"}, {"mlx5_0"}, {"UCX_TLS", "UCX_NET_DEVICES"}), "");
  EXPECT_EQ(settings_of({{"MUSTER_PORT_RANGE", "41000-41019"}}, {"eth0"}, {}), kTcp + " NET_DEVICES=eth0 TCP_PORT_RANGE=41000-41019");
}

TEST_F(Ucx, IsOfferedWhereNcclsOptionsAllowIt) {
  const auto offered = [](const char* net) {
    setenv("NCCL_NET", net, 1);
    const auto names = offered_networks(Options::inspect("/dev/null"));
    unsetenv("NCCL_NET");
    return names;
  };
  using testing::Contains;
  EXPECT_THAT(offered(""), Contains("ucx"));
  EXPECT_THAT(offered("Socket"), testing::Not(Contains("ucx")));
  EXPECT_THAT(offered("UCX"), testing::ElementsAre("ucx"));
  EXPECT_THAT(offered("verbs"), testing::Not(Contains("ucx")));
  EXPECT_THROW(offered("pigeons"), Error);
}

}  // namespace
}  // namespace muster
