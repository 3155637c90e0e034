// Network plugins of NCCL's as what joins hosts: all versions of their interface, several devices, and what they return.
#include "transports/net_plugin/net_plugin_network.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>

#include "base/error.h"
#include "muster/muster.h"
#include "support/outcome.h"
#include "support/processes.h"
#include "support/shuffled_network.h"
#include "support/wire_exchange.h"
#include "transports/make_network.h"

namespace muster {
namespace {

using test::exchange;
using test::kLargest;
using test::Variable;
using testing::AllOf;
using testing::HasSubstr;

std::string file_of(int version) { return std::string(NET_PLUGIN_FOLDER "/libnccl-net-test_v") + std::to_string(version) + ".so"; }

// What the plugin itself says.
class PluginItself {
 public:
  explicit PluginItself(int version) : handle_(dlopen(file_of(version).c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (!handle_) throw std::runtime_error(dlerror());
  }
  ~PluginItself() { dlclose(handle_); }
  void devices(int n) const { call<void(int)>("plugin_devices")(n); }
  void fail(const char* function, int after, int code) const { call<void(const char*, int, int)>("plugin_fail")(function, after, code); }
  int objects() const { return call<int()>("plugin_objects")(); }
  std::string complaint() const { return call<const char*()>("plugin_complaint")(); }

 private:
  template <class F>
  F* call(const char* name) const {
    return reinterpret_cast<F*>(dlsym(handle_, name));
  }
  void* handle_;
};

NetworkSetup setup_of(int rank, int nranks, const std::string& plugin) {
  const Variable wanted("NCCL_NET_PLUGIN", plugin);
  NetworkSetup s = test::network_setup(rank, nranks);
  s.options = Options::inspect("/nonexistent");
  return s;
}

class NetPlugin : public testing::TestWithParam<int> {
 protected:
  const PluginItself plugin{GetParam()};
  void TearDown() override {
    EXPECT_EQ(plugin.objects(), 0);
    EXPECT_EQ(plugin.complaint(), "");
    plugin.devices(1);
  }
  std::unique_ptr<NetPluginNetwork> make(int rank, int nranks = 2) const {
    const NetworkSetup s = setup_of(rank, nranks, file_of(GetParam()));
    return std::make_unique<NetPluginNetwork>(net_plugin::Plugin::open(s.options), s);
  }
};
INSTANTIATE_TEST_SUITE_P(Versions, NetPlugin, testing::Values(8, 9, 10, 11), [](const auto& v) { return "v" + std::to_string(v.param); });

TEST_P(NetPlugin, MessagesOfAllSizesArriveInOrder) {
  for (const int devices : {1, 3}) {
    plugin.devices(devices);
    auto a = make(0), b = make(1);
    EXPECT_EQ(a->rails(), static_cast<size_t>(devices));
    EXPECT_EQ(a->name(), "test sockets (v" + std::to_string(GetParam()) + ")");
    a->meet({a->address(), b->address()});
    b->meet({a->address(), b->address()});
    bool good[2] = {};
    std::atomic<int> at_work{2};
    std::vector<std::thread> threads;
    for (int r = 0; r < 2; ++r) threads.emplace_back([&, r] { exchange(r ? *b : *a, r, 5, 1200, &good[r], &at_work); });
    for (auto& t : threads) t.join();
    EXPECT_TRUE(good[0] && good[1]) << devices;
    // Each says goodbye while the other still listens.
    std::thread other([&] { b.reset(); });
    a.reset();
    other.join();
  }
}

// One thread drives both ranks.
struct Pair {
  std::unique_ptr<NetPluginNetwork> a, b;
  void meet() {
    a->meet({a->address(), b->address()});
    b->meet({a->address(), b->address()});
  }
  std::string theirs;  // what b says of its own end
  // Until a throws; what it says.
  test::Outcome drive(int rounds = 20000) {
    return test::outcome_of([&] {
      for (int i = 0; i < rounds; ++i) {
        a->progress(1);
        try {
          b->progress(1);
        } catch (const Error& e) {
          theirs = e.what();
        }
      }
    });
  }
};

// Memory that lasts is made known to the plugin once, and goes out from where it lies; when it ends the plugin forgets it.
TEST_P(NetPlugin, MemoryThatLastsIsRegisteredOnce) {
  Pair two{make(0), make(1), {}};
  two.meet();
  constexpr size_t kLong = 100'000;
  SlotSender& out = two.a->sender({1, 1, 0, kLong}, nullptr);
  SlotReceiver& in = two.b->receiver({1, 0, 0, kLong}, nullptr);
  std::vector<std::byte> memory(3 * kLong);
  for (size_t i = 0; i < memory.size(); ++i) memory[i] = test::content(3, i);
  const auto pass = [&](size_t at) {
    out.acquire(kLong);
    out.send_from(memory.data() + at);
    out.commit(1, false);
    for (int i = 0; i < 100'000 && !(in.ready() && out.sent() == out.committed()); ++i) two.a->progress(1), two.b->progress(1);
    ASSERT_TRUE(in.ready());
    EXPECT_TRUE(std::equal(memory.begin() + static_cast<ptrdiff_t>(at), memory.begin() + static_cast<ptrdiff_t>(at + kLong), in.peek(kLong)));
    in.release();
    for (int i = 0; i < 200; ++i) two.a->progress(1), two.b->progress(1);
  };
  LastingMemory& lasting = LastingMemory::of_process();
  const uint64_t life = lasting.add(memory, true, nullptr);
  pass(0);
  const int with_it = plugin.objects();
  for (size_t at : {size_t{1}, kLong, 2 * kLong}) pass(at);
  EXPECT_EQ(plugin.objects(), with_it);
  lasting.end(life);
  for (int i = 0; i < 10; ++i) two.a->progress(1);
  EXPECT_EQ(plugin.objects(), with_it - 1);
  pass(7);  // copied
  EXPECT_EQ(plugin.objects(), with_it);
}

TEST_P(NetPlugin, APeerThatEndsIsAnErrorThatNamesItUnlessItSaidGoodbye) {
  Pair two{make(0), make(1), {}};
  two.meet();
  SlotReceiver& in = two.a->receiver({1, 1, 0, kLargest}, nullptr);
  SlotSender& out = two.b->sender({1, 0, 0, kLargest}, nullptr);
  out.commit(7, false);
  for (int i = 0; i < 100000 && !in.ready(); ++i) two.a->progress(1), two.b->progress(1);
  ASSERT_TRUE(in.ready());
  two.b.reset();
  EXPECT_NO_THROW(for (int i = 0; i < 1000; ++i) two.a->progress(1));
}

TEST_P(NetPlugin, WhatAFunctionReturnsIsSaidByName) {
  for (const auto& [function, code, text] :
       {std::tuple{"connect", 2, "connect of the network plugin test sockets (v"}, {"isend", 6, "isend of the network plugin test sockets"},
        {"regMr", 1, "regMr of the network plugin test sockets"}, {"test", 3, "test of the network plugin test sockets"}}) {
    Pair two{make(0), make(1), {}};
    two.meet();
    plugin.fail(function, 0, code);
    two.b->receiver({1, 0, 0, kLargest}, nullptr);
    SlotSender& out = two.a->sender({1, 1, 0, kLargest}, nullptr);
    out.commit(7, false);
    const test::Outcome o = two.drive();
    EXPECT_EQ(o.code, Result::remote_error) << function;
    EXPECT_THAT(o.text, HasSubstr("connection between rank 0 and rank 1 is lost: ")) << function;
    // Both use one library here: which of them met with it is chance.
    EXPECT_THAT(o.text + "\n" + two.theirs, AllOf(HasSubstr(text), HasSubstr(std::string("returned ") + name_of(static_cast<Result>(code)) + " (" + std::to_string(code) + ")")))
        << function;
    EXPECT_EQ(out.sent(), out.committed()) << function;  // nobody waits for ever
    plugin.fail("", 0, 0);
  }
}

TEST_P(NetPlugin, APluginThatCannotBeginOrHasNoDevicesSaysSo) {
  const NetworkSetup s = setup_of(0, 2, file_of(GetParam()));
  plugin.fail("devices", 0, 2);
  const auto fails = test::outcome_of([&] { make_network(s); });
  EXPECT_THAT(fails.text, HasSubstr("devices of the network plugin test sockets"));
  EXPECT_EQ(fails.code, Result::system_error);
  plugin.devices(0);
  EXPECT_THAT(test::outcome_of([&] { make_network(s); }).text, HasSubstr("has no device that takes host memory"));
}

TEST(NetPlugins, RanksWithDifferentPluginsAreTold) {
  const NetworkSetup s0 = setup_of(0, 2, file_of(9)), s1 = setup_of(1, 2, file_of(10));
  Pair two{std::make_unique<NetPluginNetwork>(net_plugin::Plugin::open(s0.options), s0),
           std::make_unique<NetPluginNetwork>(net_plugin::Plugin::open(s1.options), s1), {}};
  two.meet();
  two.a->sender({1, 1, 0, kLargest}, nullptr).commit(7, false);
  const test::Outcome o = two.drive();
  EXPECT_THAT(o.text, AllOf(HasSubstr("it has the network plugin test sockets (v10), this rank has test sockets (v9)"), HasSubstr("NCCL_NET_PLUGIN")));
}

TEST(NetPlugins, APeerThatCannotBeAskedIsAnErrorWithAllItsAddresses) {
  const NetworkSetup s = setup_of(0, 2, file_of(9));
  NetPluginNetwork a(net_plugin::Plugin::open(s.options), s);
  const std::string name(a.name());
  a.meet({a.address(), name + "\n1 127.0.0.1 ::1"});  // nobody listens at port 1
  a.sender({1, 1, 0, kLargest}, nullptr).commit(7, false);
  const auto o = test::outcome_of([&] { for (int i = 0; i < 20000; ++i) a.progress(1); });
  EXPECT_THAT(o.text, AllOf(HasSubstr("127.0.0.1 port 1: connect: ECONNREFUSED"), HasSubstr("firewalls")));
}

TEST(NetPlugins, ByNameAndFileAndNone) {
  const auto opened = [](const std::string& wanted) {
    const NetworkSetup s = setup_of(0, 2, wanted);
    const auto p = net_plugin::Plugin::open(s.options);
    return p ? p->name() : "none";
  };
  EXPECT_EQ(opened("none"), "none");
  EXPECT_EQ(opened("no-such-plugin"), "none");  // with a warning
  EXPECT_EQ(opened(file_of(8)), "test sockets (v8)");
  EXPECT_EQ(opened("no-such-plugin, " + file_of(11)), "test sockets (v11)");
}

TEST(NetPlugins, AreOfferedBeforeOtherNetworks) {
  const NetworkSetup with = setup_of(0, 2, file_of(9));
  ASSERT_FALSE(offered_networks(with.options).empty());
  EXPECT_EQ(offered_networks(with.options)[0], "plugin test sockets (v9)");
  EXPECT_EQ(make_network(with)->name(), "test sockets (v9)");
  for (const char* wish : {"test sockets", "Test Sockets (v9)"}) {
    const Variable net("NCCL_NET", wish);
    EXPECT_THAT(offered_networks(setup_of(0, 2, file_of(9)).options), testing::ElementsAre("plugin test sockets (v9)"));
  }
  const Variable net("NCCL_NET", "Socket");
  for (const std::string& name : offered_networks(setup_of(0, 2, file_of(9)).options)) EXPECT_THAT(name, testing::Not(HasSubstr("plugin")));
}

// Four processes on two hosts that NCCL_HOSTID makes: collectives go by the plugin.
TEST(NetPlugins, JoinHosts) {
  test::run_processes(4, [](int rank) {
    const Variable host("NCCL_HOSTID", rank < 2 ? "left" : "right");
    for (const int version : {11, 8}) {
      const Variable same("NCCL_NET_PLUGIN", file_of(version));
      Communicator comm = Communicator::from_environment();
      for (const size_t count : {size_t{1}, size_t{1000}, size_t{300'000}}) {
        std::vector<int64_t> in(count), out(count);
        for (size_t i = 0; i < count; ++i) in[i] = static_cast<int64_t>(i) + rank;
        comm.all_reduce(in.data(), out.data(), count, DataType::int64, RedOp::sum);
        for (size_t i = 0; i < count; ++i) ASSERT_EQ(out[i], 4 * static_cast<int64_t>(i) + 6) << i;
      }
      EXPECT_GT(PluginItself(version).objects(), 0);  // its connections
      comm.destroy();
    }
    for (const int version : {11, 8}) {
      const PluginItself plugin(version);
      // A helper thread that was just looking after it ends it, perhaps.
      for (int i = 0; i < 1000 && plugin.objects() > 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
      EXPECT_EQ(plugin.complaint(), "");
      EXPECT_EQ(plugin.objects(), 0);
    }
  });
}

}  // namespace
}  // namespace muster
